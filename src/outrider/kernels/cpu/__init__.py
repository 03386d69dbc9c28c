"""The native implementation: C++, and what Python checks, prepares and keeps for it."""
