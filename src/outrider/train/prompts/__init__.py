"""User turns that training conversations begin with, composed of templates and words."""
