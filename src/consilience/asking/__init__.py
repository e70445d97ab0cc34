"""What is asked of a model beside the suite: prompts, and the cost before it is paid."""
