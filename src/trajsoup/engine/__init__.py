"""The heavy passes over checkpoints: blend (W X) and gram (X X^T). They know no strategy."""
