"""The operator table and its implementations. Nothing above this floor knows which one runs."""
