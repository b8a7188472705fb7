"""The paper's tables and figures as pictures: ours beside the paper's, colour-blind safe and readable in grey."""
