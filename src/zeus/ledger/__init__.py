"""What a recurring job has used and saved. Pure: facts in, numbers out."""
