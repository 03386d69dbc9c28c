"""Plants faults in the code one at a time and sees whether the tests of the room notice."""
