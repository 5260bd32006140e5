"""Transformer TTS: slots, causality, padding, the prenet's dropout, decoding with every model, printed parameters."""

import pytest
import torch
from test_printed_parameters import attention, parameters
from zoo import CLASSES, STACKED, load

from models.attention.base import Pattern
from models.attention.vanilla import Vanilla
from models.backbones.transformer_tts import SLOTS, TransformerTTS, kept
from models.generation.speech import synthesise
from tasks.tts.phonemes import SYMBOLS

SIZES = {"vocab_size": 13, "max_source_length": 24, "max_length": 20, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 20}
SIZES |= {"mels": 5, "prenet_dim": 8, "postnet_dim": 8, "frames_per_step": 2}
FILLED = [(name, pattern) for name in STACKED for pattern in SLOTS if pattern in CLASSES[name].patterns]
PUBLISHED = {"vocab_size": len(SYMBOLS), "max_source_length": 1024, "max_length": 300, "mels": 80, "frames_per_step": 4}
PUBLISHED |= {"dim": 512, "heads": 4, "layers": 6, "ffn_dim": 2048}
S4D = {"channels": 4, "bidirectional": False}
# LAVO Tables 3 and 5: model, slot, printed millions, hyper-parameters
PRINTED = [
    ("vanilla", "causal_self", "54.40", {}),
    ("local", "causal_self", "54.40", {}),
    ("abc", "causal_self", "54.50", {}),
    ("lavo", "causal_self", "54.60", {}),
    ("s4d", "causal_self", "55.20", {"channels": 4}),
    ("longshort", "causal_self", "57.57", {}),
    ("vanilla", "noncausal_self", "54.40", {}),
    ("probsparse", "noncausal_self", "54.40", {}),
    ("lara", "noncausal_self", "54.40", {}),
    ("cosformer", "noncausal_self", "54.40", {}),
    ("performer", "noncausal_self", "54.40", {}),
    ("nystrom", "noncausal_self", "54.40", {}),
    ("local", "noncausal_self", "54.40", {}),
    ("abc", "noncausal_self", "54.50", {}),
    ("lavo", "noncausal_self", "54.60", {}),
    ("s4d", "noncausal_self", "55.20", S4D),  # one direction; both would be 55.98 (D-20)
    ("longshort", "noncausal_self", "55.20", {}),
]


def tts(name="vanilla", pattern=Pattern.CAUSAL_SELF, stir=0.1, **options):
    torch.manual_seed(0)
    cls, hyper = load(name)
    config = TransformerTTS.Config(pattern=pattern, **{**SIZES, **options})
    model = TransformerTTS(lambda *args, **kwargs: cls(*args, **hyper, **kwargs), config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += stir * torch.randn_like(parameter)
        for norm in (*model.postnet.norms, *model.convolutions.norms):
            norm.running_mean.normal_()
    return model.eval()


def inputs(batch=3, length=11, frames=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    phonemes = torch.randint(1, 13, (batch, length), generator=generator)
    return phonemes, torch.randn(batch, frames, 5, dtype=torch.float64, generator=generator)


SEEDS = torch.tensor([5, 2**32 - 1, 7])


@pytest.mark.parametrize(("name", "pattern"), FILLED)
def test_decoding_equals_forward(name, pattern):
    model = tts(name, pattern)
    phonemes, frames = inputs(frames=10)
    phonemes[1, 7:], phonemes[2, 4:] = 0, 0
    with torch.no_grad():
        before, after, stop = model(phonemes, frames, seeds=SEEDS)
        state, last, rows, stops = model.init_state(phonemes, seeds=SEEDS), torch.zeros(3, 2, 5).double(), [], []
        for step in frames.split(2, 1):
            row, logit, state = model.step(last, state)
            rows.append(row)
            stops.append(logit)
            last = step
    torch.testing.assert_close(torch.cat(rows, 1), before, atol=1e-9, rtol=0)
    torch.testing.assert_close(torch.stack(stops, 1), stop, atol=1e-9, rtol=0)
    torch.testing.assert_close(model.refined(before), after, atol=1e-9, rtol=0)


def test_the_attention_stands_where_the_pattern_says():
    for pattern, slot in SLOTS.items():
        model = tts("local", pattern)
        stands = {
            "encoder": [layer.attention for layer in model.encoder],
            "decoder": [layer.attention for layer in model.decoder],
            "cross": [layer.cross for layer in model.decoder],
        }
        for name, layers in stands.items():
            assert all(type(layer) is (CLASSES["local"] if name == slot else Vanilla) for layer in layers)
    with pytest.raises(ValueError, match="slots causal_self, noncausal_self, not causal_cross"):
        tts("vanilla", Pattern.CAUSAL_CROSS)


def test_no_example_depends_on_the_others_and_no_step_on_later_ones():
    model, (phonemes, frames) = tts(), inputs(frames=12)
    phonemes[1, 6:], frames[1, 4:] = 0, 0
    padding = torch.zeros(3, 12, dtype=torch.bool)
    padding[1, 4:] = True
    with torch.no_grad():
        together = model(phonemes, frames, frame_padding=padding, seeds=SEEDS)
        alone = model(phonemes[1:2, :6], frames[1:2, :4], seeds=SEEDS[1:2])
        frames[0, 6] += 1.0  # in the fourth step of two frames, which the postnet spreads
        before, after, stop = model(phonemes, frames, frame_padding=padding, seeds=SEEDS)
    for batched, single in zip(together, alone, strict=True):
        torch.testing.assert_close(batched[1:2, : single.shape[1]], single, atol=1e-12, rtol=0)
    assert torch.equal(before[:, :8], together[0][:, :8]) and torch.equal(stop[:, :4], together[2][:, :4])
    assert not torch.isclose(after[0], together[1][0]).all()


def test_the_prenet_drops_half_in_evaluation_by_seed_step_and_unit():
    mask = kept(torch.arange(50), 0, 40, 64, 0.5, 0)
    assert mask.shape == (50, 40, 64) and abs(mask.double().mean() - 0.5) < 0.005
    for axis in (0, 1, 2):  # no unit, step or seed always stays; neighbours agree half of the time
        shifted = mask.roll(1, axis)
        assert abs((mask == shifted).double().mean() - 0.5) < 0.01
        assert (mask.double().mean([other for other in range(3) if other != axis]) - 0.5).abs().max() < 0.06
    assert abs((mask == kept(torch.arange(50), 0, 40, 64, 0.5, 1)).double().mean() - 0.5) < 0.01
    assert torch.equal(kept(torch.arange(50), 7, 3, 64, 0.5, 0), mask[:, 7:10])
    assert abs(kept(torch.arange(50), 0, 40, 64, 0.2, 0).double().mean() - 0.8) < 0.005
    model, (phonemes, frames) = tts(), inputs()
    with torch.no_grad():
        clips = [model(phonemes, frames, seeds=seeds)[0] for seeds in (SEEDS, SEEDS, SEEDS + 1)]
    assert torch.equal(clips[0], clips[1]) and not torch.isclose(clips[0], clips[2]).any(-1).all()


def test_a_model_speaks_until_it_stops():
    """Against rereading the whole sequence at each step; every clip stops as it would alone."""
    model, (phonemes, _) = tts(stir=0.3), inputs()
    phonemes[1, 6:] = 0
    spoken, stopped = [], []
    with torch.no_grad():
        model.stop.weight *= 20.0
        for row in range(3):
            source, seed = phonemes[row : row + 1, : 6 if row == 1 else None], SEEDS[row : row + 1]
            frames_so_far, ended = torch.zeros(1, 0, 5).double(), False
            while frames_so_far.shape[1] < 40 and not ended:
                before, after, stop = model(
                    source, torch.cat([frames_so_far, frames_so_far.new_zeros(1, 2, 5)], 1), seeds=seed
                )
                frames_so_far, ended = before, bool(stop[0, -1] > 0)
            spoken.append(after[0])
            stopped.append(ended)
    clips, ends = synthesise(model, phonemes, seeds=SEEDS, max_steps=20)
    assert [len(clip) for clip in clips] == [len(clip) for clip in spoken] and ends.tolist() == stopped
    assert len({len(clip) for clip in clips}) > 1, "the clips should stop at different steps"
    for clip, expected_clip in zip(clips, spoken, strict=True):
        torch.testing.assert_close(clip, expected_clip, atol=1e-9, rtol=0)


def test_alignments_are_the_weights_of_the_cross_attention():
    model = tts(layers=1)
    phonemes, frames = inputs(1)
    with torch.no_grad():
        weights = model.alignments(phonemes, frames)
        cross, states = model.decoder[0].cross, model.encode(phonemes)[0]
        seen = []
        hook = cross.register_forward_hook(lambda module, args, out: seen.append((args[0], out[0])))
        model(phonemes, frames)
        hook.remove()
        values = cross.project(cross.v_proj, states)
        expected = cross.out_proj((weights[0] @ values).transpose(1, 2).flatten(2))
    assert weights.shape == (1, 1, 2, 4, 11)
    torch.testing.assert_close(expected, seen[0][1], atol=1e-12, rtol=0)


def test_wrong_sizes_are_one_line():
    model, (phonemes, frames) = tts(), inputs()
    for wrong in (frames[:, :7], frames[:, :0]):
        with pytest.raises(ValueError, match="not a whole number of steps of 2"):
            model(phonemes, wrong)
    with pytest.raises(ValueError, match="kernel=4 is even"):
        tts(kernel=4)


@pytest.mark.parametrize(("name", "pattern", "printed", "changed"), PRINTED)
def test_printed_parameters(name, pattern, printed, changed):
    """The printed counts imply 79 to 84 symbols; ours are 79, of which LJSpeech's texts use 76."""
    config = TransformerTTS.Config(pattern=pattern, **PUBLISHED)
    assert f"{parameters(TransformerTTS, attention(name, **changed), config) / 1e6:.2f}" == printed
