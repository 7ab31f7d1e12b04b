"""The room that runs a recipe: the run folder, a private Ray, the job, its watch."""
