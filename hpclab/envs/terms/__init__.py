"""Terms: the observations, rewards, terminations, commands, events and actions that tasks are made of."""
