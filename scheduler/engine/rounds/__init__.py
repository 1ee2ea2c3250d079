"""Choose what runs in a round: from X and credits to a configuration of each job."""
