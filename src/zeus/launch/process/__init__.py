"""The process of one trial: started, guarded, logged and ended with all that it started."""
