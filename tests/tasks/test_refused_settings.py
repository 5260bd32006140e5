"""Settings that cannot be are one line before any data are touched; and what a backbone is told before there are any.

What no task takes (another source, a negative seed) is in test_task_contract.py, for every task.
"""

from functools import partial

import pytest

from tasks.checks import DataError
from tasks.completion.pcn import PCN
from tasks.data.classification import Classification
from tasks.forecasting.forecasting import Forecasting
from tasks.lra.image import Image
from tasks.lra.listops import ListOps
from tasks.lra.pathfinder import Pathfinder, PathX
from tasks.lra.retrieval import Retrieval
from tasks.lra.text import Text
from tasks.mlm.pretrain import Pretraining
from tasks.tts.ljspeech import LJSpeech
from tests.helpers import completion, listops, pathfinder, translation
from tests.helpers.tasks import one_line
from tests.tasks import test_finetuning, test_forecasting, test_summarization, test_tts
from tests.tasks.test_language_modelling import Corpus

NO_SECOND = "_cross form (it has: causal_self, noncausal_self)"
REFUSED = {
    Text: [
        ({"source": "hf", "path": "x"}, "takes no path: task.path=null"),
        ({"validation": "train"}, "validation='train' is none of held_out, test"),
        ({"pattern": "causal_cross"}, NO_SECOND),
        ({"max_length": 0}, "max_length=0"),
        ({"max_length": 1, "append_eos": True}, "max_length=1"),
        ({"drop_remainder": -3}, "drop_remainder=-3"),
        ({"source": "synthetic", "negated": 1.5}, "negated=1.5"),
        ({"source": "synthetic", "max_length": 100, "distance": 60}, "distance=60 is not between 0 and 38"),
        ({"source": "synthetic", "distance": -1}, "distance=-1"),
    ],
    Image: [
        ({"max_length": 1000}, "max_length=1000 is no square picture: 1024, 256, 64, 16"),
        ({"max_length": 4}, "max_length=4"),
        ({"source": "synthetic", "noise": 256}, "noise=256"),
        ({"source": "synthetic", "noise": -1}, "noise=-1"),
    ],
    Retrieval: [
        ({"source": "slice", "path": "x", "max_length": 4001}, "no more than 4000 bytes"),
        ({"source": "synthetic", "words": 9}, "words=9 is not between 1 and 8"),
        ({"source": "synthetic", "negated": -0.1}, "negated=-0.1"),
        ({"source": "synthetic", "against": 1.5}, "against=1.5"),
        ({"source": "synthetic", "distance": 4000}, "distance=4000"),
    ],
    partial(ListOps, **listops.SMALL): [
        ({"min_length": 64}, "min_length=64"),
        ({"max_depth": 1}, "max_depth=1"),
        ({"max_args": 1}, "max_args=1"),
        ({"source": "slice", "path": "x", "max_length": 0}, "max_length=0"),
        ({"final_lengths": [64]}, "final_lengths=64"),
    ],
    partial(Pathfinder, **pathfinder.TINY): [
        ({"max_length": 143}, "max_length=143 is no square picture"),
        ({"max_length": 144, "append_eos": True}, "no square picture and an end symbol"),
        ({"design": {"contour": 9}}, "design.contour is none of antialias, continuity, contour_length"),
        ({"design": {"size": 12}}, "design.size is none of"),
        ({"design": {**pathfinder.DESIGN, "contour_length": 1}}, "contour_length=1"),
        ({"design": {**pathfinder.DESIGN, "seed_distance": 3}}, "no room for 4 x seed_distance=3"),
    ],
    partial(PCN, **completion.SMALL): [
        ({"validation": "train"}, "validation='train' is none of val, test"),
        ({"pattern": "causal_self"}, "has no causal_self form (it has: noncausal_cross)"),
        ({"input_points": 0}, "input_points=0 is less than 1"),
        ({"views": 0}, "views=0 is less than 1"),
        ({"asymmetry": 1.0}, "asymmetry=1.0 is not between 0 and 1"),
        ({"f1_threshold": 0.0}, "f1_threshold=0.0 is no positive distance"),
    ],
    partial(Forecasting, dataset="etth1", **test_forecasting.SIZES): [
        ({"features": "MS"}, "features='MS' is none of M, S"),
        ({"dataset": "ettm2"}, "dataset='ettm2' is none of"),
        ({"label_len": 21}, "label_len=21 is longer than seq_len=20"),
        ({"pred_len": 0}, "pred_len=0 is less than 1"),
        ({"time": "d"}, "time='d' is none of h, t"),
    ],
    translation.of_settings: [
        ({"validation": "none"}, "validation='none' is none of train, dev"),
        ({"tokenizer": "bytes"}, "has subwords"),
        ({"news_commentary": 10}, "news_commentary=10 is not 9 or 12"),
        ({"clean_ratio": 0.5}, "clean_ratio=0.5"),
        ({"vocabulary": None}, "vocabulary=None with tokenizer=subwords"),
        ({"tokenizer_path": "codes"}, "without a file of codes"),
    ],
    test_summarization.of_settings: [
        ({"smoothing": 1.0}, "smoothing=1.0"),
        ({"source_length": 1}, "source_length=1 is less than 2"),
        ({"decoded": 0}, "decoded=0"),
        ({"vocabulary": 300}, "belongs to bpe"),
        ({"tokenizer": "words"}, "tokenizer='words' is none of bart, bpe, bytes"),
        ({"min_new_tokens": 9}, "min_new_tokens"),
        ({"source": "synthetic", "announced": 13}, "announced=13"),
        ({"source": "synthetic", "document_facts": 3, "announced": 2}, "articles=4"),
        ({"source": "synthetic", "cut_abstract": True}, "cut_abstract is for source=slice"),
    ],
    partial(Corpus, length=16): [
        ({"length": 1}, "length=1 is less than 2"),
        ({"stride": 17}, "stride=17 is more than a window has tokens"),
        ({"stride": 12, "lengths": [8]}, "stride=12 is more than a window has tokens"),
        ({"reading": "words"}, "reading='words' is none of"),
        ({"tokenizer": "morse"}, "tokenizer='morse' is none of"),
        ({"vocabulary": 512}, "belongs to bpe, words, json"),
        ({"tokenizer": "bpe"}, "belongs to bpe, words, json"),
        ({"tokenizer": "bpe", "vocabulary": 256}, "vocabulary=256 is less than 257"),
        ({"dictionary": 4}, "dictionary=4 is less than 5"),
        ({"test_bytes": 0}, "test_bytes=0 is less than 1"),
        ({"beginnings": 3}, "beginnings=3 requires val_bytes, as many or more, not None"),
        (
            {"beginnings": 3, "val_bytes": 9, "test_bytes": 2},
            "beginnings=3 requires test_bytes, as many or more, not 2",
        ),
    ],
    partial(Pretraining, source="slice", path="somewhere", length=16, tokenizer="bytes"): [
        ({"share": 0.0}, "share=0.0"),
        ({"length": 2}, "length=2 is less than 3"),
        ({"tokenizer": "wordpiece"}, "tokenizer='wordpiece' is none of gpt2, bpe, bytes"),
        ({"tokenizer": "bpe", "vocabulary": 300}, "vocabulary_text=None with tokenizer=bpe"),
        ({"vocabulary": 300}, "vocabulary=300 with tokenizer=bytes"),
        ({"tokenizer_path": "there"}, "tokenizer_path=there with tokenizer=bytes"),
        ({"pattern": "noncausal_cross"}, NO_SECOND),
    ],
    partial(LJSpeech, **test_tts.SIZES): [
        ({"pattern": "causal_cross"}, NO_SECOND),
        ({"frames_per_step": 0}, "frames_per_step=0"),
        ({"max_frames": 1}, "max_frames=1"),
        ({"path": "somewhere"}, "takes no path"),
    ],
    partial(Classification, path="somewhere", max_length=9): [
        ({"fractions": (0.5, 0.5)}, "three positive shares"),
        ({"tokenizer": "words"}, "vocabulary=None with tokenizer=words: it belongs to words, json"),
        ({"tokenizer": "json", "vocabulary": 9}, "tokenizer_path=None with tokenizer=json: it belongs to json"),
        ({"tokenizer": "gpt2"}, "none of bytes, words, json"),
        ({"source": "synthetic", "path": None}, "takes task.train"),
    ],
    test_finetuning.of_settings: [
        ({"max_length": 4}, "max_length=4 is less than 8"),
        ({"second_length": 0}, "second_length=0"),
        ({"tokenizer": "bpe", "vocabulary": 300}, "vocabulary_text=None with tokenizer=bpe"),
    ],
}


@pytest.mark.parametrize(
    ("make", "settings", "message"), [(make, *row) for make, rows in REFUSED.items() for row in rows]
)
def test_settings_that_cannot_be_touch_nothing(tmp_path, make, settings, message):
    with pytest.raises(ValueError) as error:
        make(data_root=tmp_path / "data", **settings)
    one_line(error, message)
    assert not isinstance(error.value, DataError) and not (tmp_path / "data").exists()


SEQUENCE = {"pattern": "noncausal_self", "padding_id": 0}
TOLD = [
    (Text, {}, {"vocab_size": 257, "classes": 2, "max_length": 4000}),
    (Text, {"append_eos": True}, {"vocab_size": 258, "classes": 2, "max_length": 4000}),
    (ListOps, {}, {"vocab_size": 17, "classes": 10, "max_length": 2000}),
    (ListOps, {"append_eos": True}, {"vocab_size": 18, "classes": 10, "max_length": 2000}),
    (Retrieval, {"path": "x"}, {"vocab_size": 257, "classes": 2, "max_length": 4000}),
    (Image, {}, {"vocab_size": 256, "classes": 10, "max_length": 1024, "padding_id": None}),
    (Image, {"mask_black": True, "append_eos": True}, {"vocab_size": 257, "classes": 10, "max_length": 1024}),
    (Pathfinder, {}, {"vocab_size": 256, "classes": 2, "max_length": 1024, "padding_id": None}),
    (Pathfinder, {"append_eos": True, "mask_black": True}, {"vocab_size": 257, "classes": 2, "max_length": 1025}),
    (PathX, {}, {"vocab_size": 256, "classes": 2, "max_length": 16_384, "padding_id": None}),
]


@pytest.mark.parametrize(("make", "settings", "told"), TOLD)
def test_a_backbone_is_told_the_papers_sizes(tmp_path, make, settings, told):
    task = make(data_root=tmp_path, **settings)
    assert task.backbone_kwargs() == {**SEQUENCE, **told}
    assert (task.metric, task.higher_is_better, task.baseline_name) == ("acc", True, "majority_class")
