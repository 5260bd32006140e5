"""Speech frames from phonemes, step by step, until the model predicts the last step.

B batch, M phonemes, S steps, r frames of a step, F mels
"""

import torch
from torch import Tensor

from models.backbones.transformer_tts import TransformerTTS
from models.generation.state import evaluating, take_rows


def synthesise(
    model: TransformerTTS, phonemes: Tensor, *, seeds: Tensor | None = None, max_steps: int
) -> tuple[list[Tensor], Tensor]:
    """phonemes (B, M) -> (frames of each example (T, F), after the postnet; whether each stopped, bool (B,)).

    A step reads the previous step's frames, before the postnet. An example stops after the first step whose probability
    of being the last exceeds one half, or after `max_steps`; from then on it is not computed. `seeds` (B,) determine
    the prenet's dropout.
    """
    rows = torch.arange(len(phonemes), device=phonemes.device)  # of the unfinished examples
    steps = torch.full_like(rows, max_steps)
    stopped = torch.zeros_like(rows, dtype=torch.bool)
    out = []
    with evaluating(model):
        state = model.init_state(phonemes, seeds=seeds)
        frames = model.features.weight.new_zeros(len(phonemes), model.frames_per_step, model.mels)
        for number in range(1, max_steps + 1):
            frames, stop, state = model.step(frames, state)
            whole = frames.new_zeros(len(phonemes), *frames.shape[1:])
            whole[rows] = frames
            out.append(whole)
            ended = stop > 0
            if ended.any():
                steps[rows[ended]], stopped[rows[ended]] = number, True
                going = (~ended).nonzero()[:, 0]
                if not len(going):
                    break
                rows, frames, state = rows[going], frames[going], take_rows(state, going)
        before = torch.cat(out, 1)  # (B, S r, F)
        lengths = steps * model.frames_per_step
        padding = torch.arange(before.shape[1], device=rows.device) >= lengths[:, None]
        after = model.refined(before, padding)
    return [frames[:length] for frames, length in zip(after, lengths.tolist(), strict=True)], stopped
