"""What each field of a pool's configuration means, for the file that `muster pool init` writes. Defaults and bounds are
not said here: the file takes them from the models themselves."""

from protocol import config, curriculum, environments, problems, training
from protocol.encoding import Document
from protocol.evidence import null_model

_MATRIX = "Decay of the weights of matrices; others do not decay."
_BETA = "Decay of the running mean of gradients"
_RATE = "The peak learning rate."

EXPLAINED: dict[type[Document], dict[str, str]] = {
    config.PoolConfig: {
        "version": "The version of this format.",
        "name": "What people see the pool under.",
        "model": "The model that is trained.",
        "environments": "Where problems come from, and what answers are worth. Repeat the table for several; each gets "
        "its weight's share of the problems.",
        "work": "The shape of one file of work: what a node makes, and is paid for, at a time.",
        "checks": "Where a file's measurements count as fraud. These hold for computing in `model.dtype` with the "
        "engines of muster; `muster calibrate` measures your own model's.",
        "train": "How accepted files change the model.",
        "evaluation": "What is measured of the model, on problems that training never sees.",
        "weights": "How policy steps travel to nodes and validators.",
        "data": "Set it for a data pool: it buys rollouts of the model as it is, and trains nothing.",
        "evidence": "The law by which anybody adds up all files of a node: `muster calibrate --apply` writes it.",
        "scoring_versions": "What decides scores: a machine with another version of one of these does no work here.",
    },
    config.DataConfig: {
        "rollouts": "How many verified rollouts it buys; then its owner's process closes it.",
    },
    config.WeightsConfig: {
        "snapshot_every": "Every step is published as what changed, multiples of this in full too; 1: all in full.",
        "delta_min_bytes": "Weights of fewer bytes always travel whole.",
    },
    config.ModelConfig: {
        "source": "The model's folder, or its id on huggingface.co. Weights travel by their hash, not by this name.",
        "license": "The model's licence, as nodes see it before they join.",
        "dtype": "What everybody computes in. Thresholds hold for one dtype only.",
        "prompt_template": "What the model is asked; {question} stands for the problem.",
        "chat_template": "Put the prompt into the chat template of the model's tokenizer.",
        "turns": "Messages before the question, where there is a chat template: a system prompt, worked examples.",
        "answer_after": "Only what follows this text counts as the answer, such as </think>; empty: all of it.",
    },
    config.ChatTurn: {
        "role": "Who speaks.",
        "content": "What is said.",
    },
    environments.EnvironmentConfig: {
        "name": "Such as reasoning_gym/chain_sum; docs/guides/environments.md has them all.",
        "label": "What metrics and reports call it; not set: its name.",
        "weight": "Its share of the problems, compared with the other environments'.",
        "params": "The environment's own parameters.",
        "content": "SHA-256 of what defines it, such as its data file: whoever has another refuses to work.",
        "rows": "How many problems its data file has; 0 where problems are made from seeds.",
        "held_out": "How many of these, the last ones, are kept for evaluation.",
        "problems": "Draw from some problems only: `muster data filter` writes this part, with those that a model "
        "solves sometimes.",
        "curriculum": "Let problems rest that the run's own models nearly always or hardly ever solved; they come back "
        "by themselves. It takes `rows` or `problems`.",
        "targets": "Instead of the pool's: lengths that answers are asked to have.",
        "length_alpha": "Instead of the pool's: reward lost for every token off the target.",
        "advantage": "Instead of the run's: how rewards of one problem's answers become advantages.",
        "advantage_scale": "What multiplies the advantages of this environment's answers.",
    },
    curriculum.Curriculum: {
        "tries": "With fewer tries a problem is drawn like any other.",
        "lowest": "Thousandths of solved tries: below them a problem is masked as too hard.",
        "highest": "Above them it is masked as too easy.",
        "solved": "The task reward from which on a try counts as solved.",
        "window": "Only files that became final during so many policy steps count; what rests comes back after as "
        "many.",
        "most": "At most so many thousandths of the problems rest at a time.",
    },
    problems.ProblemFilter: {
        "rule": "By what the problems were chosen.",
        "candidates": "How many problems were tried.",
        "kept": "Base64 of one bit for each of them: kept or not.",
        "model": "SHA-256 of the files of the model that tried them.",
        "samples": "Tries at each problem.",
        "lowest": "The least share of solved tries of those that were kept.",
        "highest": "The greatest share of solved tries of those that were kept.",
        "report": "SHA-256 of the filter's own record.",
    },
    config.WorkConfig: {
        "problems_per_file": "Problems of one file.",
        "samples_per_problem": "Answers to each problem: an advantage compares them. A file holds the product of both.",
        "max_new_tokens": "The longest answer, in tokens.",
        "max_prompt_tokens": "The longest prompt, in tokens. Both together must fit the model's context.",
        "temperature": "The temperature of sampling.",
        "targets": "Lengths (in tokens) that answers are asked to have, one drawn for each problem; none: no target.",
        "length_tiers": "Instead of `targets`: such lengths for each tier of nodes, the weakest nodes first.",
        "length_alpha": "Reward lost for every token that an answer is off its target.",
    },
    config.ChecksConfig: {
        "eos_probability_min": "An answer that ends by an EOS less probable than this, which the noise did not choose "
        "either, was cut.",
        "exponent_mismatches_reject": "Exponents of the proven activations that differ, the mean over chunks.",
        "exponent_mismatches_chunk_reject": "The same, of the worst chunk of 32 tokens.",
        "mantissa_mean_reject": "How far mantissas of the proven activations are off, the mean over chunks.",
        "mantissa_mean_chunk_reject": "The same, of the worst chunk.",
        "sampling_gap_reject": "By how much a token lost to the one that the noise picks, the worst token.",
        "sampling_miss_rate_reject": "The share of tokens that are not those that the noise picks.",
        "logprob_error_reject": "How far a claimed log-probability is off, the worst token.",
        "logprob_mean_reject": "The same, the mean over tokens.",
        "distribution_nats_reject": "How improbable the text as a whole is under honest sampling, in nats: honest work "
        "reaches x with a probability of exp(-x) at most.",
        "unsure_band": "From this share of a threshold on the vote is `unsure`, which counts as accepted.",
    },
    training.TrainConfig: {
        "steps": "Policy steps of the whole run.",
        "files_per_step": "Files that a step trains.",
        "max_off_policy_steps": "How many steps old a file may be; the terms' `max_lag` must be at least as much.",
        "minibatches": "Updates of the weights in each step.",
        "filter": "Let a step wait for files with signal: answers to a problem whose rewards differ.",
        "lora": "Train low-rank additions to the projections instead of all weights.",
        "algorithm": "What an update minimises (docs/training.md has the formulas).",
        "optimizer": "How a gradient becomes an update.",
    },
    training.OnlineFilter: {
        "groups": "A step takes files until they hold so many problems with signal.",
        "max_files": "And never more files than this.",
    },
    training.LoraConfig: {
        "rank": "Their rank.",
        "alpha": "Their scale is alpha / rank.",
    },
    training.AlgorithmConfig: {
        "loss": "The policy loss: grpo, gspo, cispo or dppo.",
        "advantage": "How rewards of one problem's answers become advantages.",
        "normaliser": "What a token's loss is divided by: the minibatch's tokens, its sequences and their lengths, or "
        "a constant.",
        "constant_length": "That constant, with `normaliser` constant.",
        "importance_cap": "The most that a file of an older policy may weigh; 0: all weigh 1.",
        "entropy_coefficient": "The weight of a bonus for entropy.",
        "kl": "A penalty on leaving the base model.",
    },
    training.KlConfig: {
        "coefficient": "Its weight.",
        "estimator": "How the divergence is estimated.",
    },
    training.GrpoConfig: {
        "name": "The clipped ratio of every token.",
        "epsilon_low": "A ratio is clipped below 1 - this.",
        "epsilon_high": "And above 1 + this.",
        "delta": "The most a ratio may be where the advantage is negative; null, which only JSON can say, leaves it "
        "open.",
    },
    training.GspoConfig: {
        "name": "The clipped ratio of a whole sequence; with `normaliser` sequences.",
        "epsilon_low": "A ratio is clipped below 1 - this.",
        "epsilon_high": "And above 1 + this.",
    },
    training.CispoConfig: {
        "name": "REINFORCE with a bounded ratio as a constant weight.",
        "ratio_max": "The bound.",
    },
    training.DppoConfig: {
        "name": "Tokens whose probability moved too far have no gradient.",
        "mask_low": "Too far downwards.",
        "mask_high": "Too far upwards.",
        "squared_log_ratio": "The weight of the squared log-ratio.",
    },
    training.OptimizerConfig: {
        "method": "The optimizer: adamw or muon.",
        "schedule": "The learning rate over the updates of a run.",
        "grad_clip": "The largest norm of a gradient.",
        "ess_reference": "Lower the learning rate where the effective sample size falls below this share; not set: "
        "never.",
    },
    training.ScheduleConfig: {
        "warmup_updates": "Updates over which it rises from 0.",
        "decay": "How it falls at the end.",
        "decay_share": "Over which last share of the run.",
        "final_share": "To which share of its peak.",
    },
    training.AdamWConfig: {
        "name": "AdamW.",
        "learning_rate": _RATE,
        "beta1": f"{_BETA}.",
        "beta2": f"{_BETA}' squares.",
        "epsilon": "Added to the denominator.",
        "weight_decay": _MATRIX,
    },
    training.MuonConfig: {
        "name": "Muon on the blocks' matrices, AdamW elsewhere.",
        "learning_rate": _RATE,
        "momentum": "Momentum of Muon.",
        "beta1": f"{_BETA}, of AdamW.",
        "beta2": f"{_BETA}' squares, of AdamW.",
        "epsilon": "Added to the denominator, of AdamW.",
        "weight_decay": _MATRIX,
    },
    config.EvaluationConfig: {
        "every": "Measure every so many steps; 0: the base model and the last step only.",
        "sets": "Sets of held-out problems; the first is what the run's reward is judged by.",
    },
    config.EvaluationSet: {
        "name": "What it is called.",
        "environment": "Another environment than the pool's own.",
        "problems": "How many problems.",
        "samples": "Tries at each.",
        "temperature": "The temperature of sampling; not set: the pool's.",
        "solved": "The task reward from which on a try counts as solved.",
    },
}

MACHINE_WRITTEN: tuple[type[Document], ...] = (null_model.EvidenceConfig,)
"""Parts that a command writes and nobody by hand: the file names them, and holds one only where it is set."""
