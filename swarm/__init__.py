"""Swarms: members train policies of their own and exchange rollouts as text (SAPO, https://arxiv.org/abs/2509.08721)."""
