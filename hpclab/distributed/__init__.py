"""All that knows torch.distributed: collectives, the gradient reduction, and what ranks share."""
