"""What suites and tasks are made and judged with: sheets for people, and what they answered."""
