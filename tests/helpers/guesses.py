"""Models that guess as the chance level of each metric does."""

import torch


class Zeros(torch.nn.Module):
    """The mean of standardised training rows."""

    def __init__(self, pred_len):
        super().__init__()
        self.pred_len = pred_len

    def forward(self, past, past_time, future_time):
        return past.new_zeros(len(past), self.pred_len, past.shape[2])


class ZeroTarget(torch.nn.Module):
    """The mean of standardised training targets."""

    def forward(self, tokens):
        return tokens.new_zeros(len(tokens), 1).double()


class Cloud(torch.nn.Module):
    def __init__(self, points):
        super().__init__()
        self.points = torch.from_numpy(points)

    def forward(self, partial):
        return partial, self.points.expand(len(partial), -1, -1)


class OneClass(torch.nn.Module):
    def __init__(self, task):
        super().__init__()
        labels = task.split("train").batch(range(len(task.split("train"))))["label"]
        self.logits = torch.bincount(labels, minlength=task.classes).double()

    def forward(self, tokens):
        return self.logits.expand(len(tokens), -1)


class OneAnswer(torch.nn.Module):
    """The most frequent answer of a probe at every position; it keeps nothing to decode from."""

    def __init__(self, task):
        super().__init__()
        self.logits = torch.nn.functional.one_hot(torch.tensor(task.majority_answer), task.vocab_size).double()

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, -1)

    def prefill(self, prompt):
        return self.logits.expand(len(prompt), -1), {}


class OneGuess(torch.nn.Module):
    """All symbols are equally likely; it keeps nothing to decode from."""

    def __init__(self, task):
        super().__init__()
        self.symbols = task.symbols

    def forward(self, tokens):
        return torch.zeros(*tokens.shape, self.symbols)

    def prefill(self, prompt):
        return torch.zeros(len(prompt), self.symbols), {}


class Unigram(torch.nn.Module):
    """The frequencies of the training tokens, each token counted once more."""

    def __init__(self, task):
        super().__init__()
        targets = task.split("train").batch(range(len(task.split("train"))))["targets"]
        self.logits = (torch.bincount(targets[targets >= 0], minlength=task.vocab_size) + 1).double().log()

    def forward(self, tokens, targets):
        logits = self.logits.expand(*targets.shape, -1)
        return torch.nn.functional.cross_entropy(logits.mT, targets, reduction="none")


class UnigramOfTargets(torch.nn.Module):
    """The same of an encoder-decoder: of the targets' tokens, whatever the source."""

    def __init__(self, task):
        super().__init__()
        self.logits = Unigram(task).logits

    def forward(self, source, inputs):
        return self.logits.expand(*inputs.shape, -1)


class UnigramOfMasked(torch.nn.Module):
    """The same of masked tokens: of all that may be masked."""

    def __init__(self, task):
        super().__init__()
        stream = task.split("train").stream
        tokens = torch.from_numpy(stream.tokens(0, len(stream)))
        self.logits = (torch.bincount(tokens, minlength=task.vocab_size) + 1).double().log()

    def forward(self, tokens, masked, targets):
        return torch.nn.functional.cross_entropy(self.logits.expand(*targets.shape, -1).mT, targets, reduction="none")


class MeanFrame(torch.nn.Module):
    """The mean of standardised training frames, spoken for as many steps as the text has signs."""

    def __init__(self, task):
        super().__init__()
        self.step, self.mels = task.frames_per_step, task.scale.mels

    def forward(self, phonemes, frames, **options):
        zeros = torch.zeros_like(frames)
        return zeros, zeros, torch.zeros(len(frames), frames.shape[1] // self.step)

    def synthesise(self, phonemes):
        lengths = ((phonemes > 0).sum(1) * self.step).tolist()
        return [torch.zeros(length, self.mels) for length in lengths], torch.ones(len(phonemes), dtype=torch.bool)


# {metric: a model that makes the guess of the chance level}
GUESSES = {
    "acc": lambda task: OneAnswer(task) if task.name.startswith("probe/") else OneClass(task),
    "mse": lambda task: ZeroTarget() if task.name.startswith("data/") else Zeros(task.pred_len),
    "gap": OneGuess,
    "cd_l1": lambda task: Cloud(task.training_points()),
    "mcd_forced": MeanFrame,
    "ppl": Unigram,
    "nats": lambda task: (UnigramOfMasked if task.name.startswith("mlm/") else UnigramOfTargets)(task),
}
