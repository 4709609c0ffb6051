"""Makes a model folder from an embedding model: a local sentence-transformers folder, or an encoder with its tokenizer.

Input is the path. Output is a folder with one float32 graph, which computes the vector of a text, and a config.json
whose `zero_shot` block the program uses to compute scores from cosines.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import torch
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from models import GraphError, InputError
from models.export import graph_of, save_graph
from models.make import LICENCES, copy_files, new_folder
from models.source import (
    COPIED,
    DEFAULT_MAX_TOKENS,
    NO_LIMIT,
    check_vocabulary,
    count_of,
    load,
    one_line,
    read_config,
    read_tokenizer,
)
from models.texts import FILLER, LABELLED, VECTORS
from models.verify import FP32_ERROR, batches_of
from training.embed import Embedder
from training.proof import GRAPH, write_proof

MODULES = "modules.json"
OUTPUT = "sentence_embedding"
TEMPLATE = "This text is about {}."
SCALE = 20.0  # the default of MultipleNegativesRankingLoss, with which sentence-transformers trains
FEWEST_TOKENS = 3  # two special tokens and one of the text
# Setting names in the Transformer module, in the order in which sentence-transformers looks for them.
SETTINGS = [
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
# Families whose positions start after the padding id, so that two are never used. Equal to OFFSET_POSITIONS in
# crates/score/src/folder/config.rs.
OFFSET_FAMILIES = (
    "camembert",
    "data2vec-text",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Embedding:
    """An encoder, its tokenizer, and the pooling that makes a text's vector from its states.

    `root` contains the licences and `folder` contains the encoder; they are often the same folder. `pooling` is `mean`
    (of the states of all real tokens) or `cls` (the state of the first token). `lower` is true if sentence-transformers
    lower-cases a text before it is tokenized. `notes` are lines for the user.
    """

    root: Path
    folder: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: str
    max_tokens: int
    lower: bool = False
    notes: list[str] = field(default_factory=list)

    def ids(self, text: str, limit: int | None = None) -> list[int]:
        """Returns a text's ids as sentence-transformers makes them, at most `limit` (by default, the model's limit)."""
        text = text.strip().lower() if self.lower else text.strip()
        return self.tokenizer(text, truncation=True, max_length=limit or self.max_tokens)["input_ids"]

    @torch.no_grad()
    def vector(self, ids: list[int]) -> np.ndarray:
        """Returns torch's vector [D] of length 1 for one text alone. Raises `InputError` if the model fails."""
        try:
            states = self.model(input_ids=torch.tensor([ids])).last_hidden_state[0].double().numpy()
        except Exception as problem:  # torch raises many kinds of exceptions
            raise InputError(
                f"the model of `{self.folder}` cannot read {len(ids)} tokens: {one_line(problem)}; is `max_seq_length` "
                "too large?"
            ) from None
        pooled = states[0] if self.pooling == "cls" else states.mean(0)
        return pooled / np.linalg.norm(pooled)


class Pooled(torch.nn.Module):
    """The exported module: the encoder with inputs in a fixed order, and one vector of length 1 per row."""

    def __init__(self, source: Embedding, input_names: list[str]):
        super().__init__()
        self.encoder = source.model
        self.pooling = source.pooling
        self.input_names = input_names

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Returns vectors [batch, D] for int64 tensors [batch, sequence], one tensor for each input name."""
        inputs = dict(zip(self.input_names, tensors, strict=True))
        states = self.encoder(**inputs).last_hidden_state
        if self.pooling == "cls":
            pooled = states[:, 0]
        else:
            real = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
            pooled = (states * real).sum(1) / real.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(pooled, dim=1)


def read_embedding(folder: Path, most: int | None = None) -> Embedding:
    """Reads and checks the folder; texts are truncated at `most` tokens, or at the model's limit if it is lower.

    Without `modules.json`, the pooling is `mean`. Raises `InputError`.
    """
    if not folder.is_dir():
        raise InputError(f"`{folder}` is not a folder: pass a sentence-transformers folder")
    if (folder / MODULES).is_file():
        encoder, pooling = read_modules(folder)
        notes = prompt_notes(folder)
    else:
        encoder, pooling = folder, "mean"
        notes = [f"`{folder}` has no `{MODULES}`: the vector of a text is the mean of its tokens"]
    config = read_config(encoder)
    tokenizer = read_tokenizer(encoder)
    check_vocabulary(tokenizer, config)
    model, lacking = load(encoder, AutoModel, trust_remote_code=False)
    if model.config.is_encoder_decoder:
        raise InputError(f"`{encoder / 'config.json'}`: {config.get('model_type')!r} has a decoder; choose an encoder")
    # sentence-transformers does not use the pooler of BERT and related models.
    lacking = [name for name in lacking if not name.startswith("pooler.")]
    if lacking:
        raise InputError(f"the weights of `{encoder}` lack {count_of(lacking)}: copy them again from their source")
    settings = first_json(encoder, SETTINGS)
    limit = most_tokens(config, tokenizer, settings)
    limit = min(limit, most or limit)
    return Embedding(folder, encoder, model, tokenizer, pooling, limit, bool(settings.get("do_lower_case")), notes)


def read_modules(folder: Path) -> tuple[Path, str]:
    """Returns the encoder's folder and the pooling. Raises `InputError` for a module that the graph would omit."""
    modules = read_json(folder / MODULES)
    try:
        kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
        own = [module["type"] for module in modules if not module["type"].startswith("sentence_transformers.")]
        paths = [folder / module["path"] for module in modules]
    except (TypeError, KeyError, AttributeError):
        raise InputError(f"`{folder / MODULES}` is not a list of modules with `type` and `path`") from None
    unknown = own + [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if unknown:
        raise InputError(
            f"`{folder / MODULES}` has the module `{unknown[0]}`; use a model that has only Transformer, Pooling and "
            "Normalize"
        )
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise InputError(f"`{folder / MODULES}` has {', '.join(kinds)}; there must be Transformer, Pooling, Normalize")
    return paths[0], read_pooling(paths[1] / "config.json")


def read_pooling(path: Path) -> str:
    """Returns `mean` or `cls`. Raises `InputError` for any other pooling and for combined poolings."""
    config = read_json(path)
    if not isinstance(config, dict):
        raise InputError(f"`{path}` is not a JSON object: copy it from the model's source")
    names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    chosen = [names.get(key, key) for key, value in config.items() if key.startswith("pooling_mode_") and value]
    if "pooling_mode" in config:  # as newer versions of sentence-transformers write it
        mode = config["pooling_mode"]
        chosen = mode if isinstance(mode, list) else [mode]
    if chosen not in (["mean"], ["cls"]):
        said = ", ".join(map(str, chosen)) or "none"
        raise InputError(f"`{path}`: the pooling is {said}; use a model with mean or cls pooling")
    return chosen[0]


def prompt_notes(folder: Path) -> list[str]:
    """Returns a warning if the model may need a prompt before each text, because topicmill adds none.

    Raises `InputError` if sentence-transformers adds a prompt to every text, because the vectors would then differ.
    """
    config = first_json(folder, ["config_sentence_transformers.json"])
    prompts = config.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    default = config.get("default_prompt_name")
    if default is not None and prompts.get(default) != "":
        raise InputError(
            f"`{folder / 'config_sentence_transformers.json'}` has the default prompt `{default}`, which is put before "
            "every text, but topicmill adds no prompt: use a different model, or set `default_prompt_name` to null to "
            "use the model without one"
        )
    named = [name for name, prompt in prompts.items() if prompt]
    page = folder / "README.md"
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    written = [prefix for prefix in ("query: ", "search_document: ") if prefix in text]
    if not (named or written):
        return []
    wants = f"has prompts ({', '.join(named)})" if named else f"mentions `{written[0]}` in its README.md"
    return [
        f"warning: `{folder}` {wants}: the model may need such a prompt before each text, but topicmill adds none. "
        "Before you use the model, compare it with another using `topicmill labels evaluate`"
    ]


def most_tokens(config: dict, tokenizer: PreTrainedTokenizerBase, settings: dict) -> int:
    """Returns the maximum number of ids in a text: the minimum of `max_seq_length`, the tokenizer's limit, and usable
    positions."""
    positions = config.get("max_position_embeddings") or 0
    if config.get("model_type") in OFFSET_FAMILIES:
        positions -= 2
    given = settings.get("max_seq_length")
    if given is not None and (not isinstance(given, int) or given < FEWEST_TOKENS):
        raise InputError(f"`max_seq_length` of sentence_bert_config.json is {given!r}: set a number of tokens")
    limits = [limit for limit in (given, tokenizer.model_max_length, positions) if limit and 0 < limit < NO_LIMIT]
    return min(limits, default=DEFAULT_MAX_TOKENS)


def make_embedding(source: Embedding, out: Path, scale: float, say: Say) -> None:
    """Makes the folder `out` atomically; `scale` is the `softmax_scale` in the `zero_shot` block.

    Raises `GraphError` if the graph's vectors differ from torch's, and `InputError` if `out` is not empty or if
    `tokenizer.json` yields different ids from sentence-transformers.
    """
    with new_folder(out) as folder:
        for note in source.notes:
            say(note)
        copy_files(source.folder, folder, (*COPIED, "special_tokens_map.json"))
        copy_files(source.root, folder, LICENCES)
        config = read_config(source.folder)
        config["zero_shot"] = block_of(source, scale)
        (folder / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False), encoding="utf-8")
        save_graph(built(source), folder / GRAPH)
        error = verify(source, folder)
        write_proof(folder, source.folder)
        size = sum(path.stat().st_size for path in folder.glob(f"{GRAPH}*"))
        block = config["zero_shot"]
        say(
            f"{GRAPH}: {size / 1e6:,.1f} MB, within {error:.1e} of torch; {source.pooling} of the tokens, "
            f"{source.max_tokens} tokens at most; scales {block['softmax_scale']:g} and {block['sigmoid_scale']:g}, "
            f"bias {block['sigmoid_bias']:g}. Next: topicmill model verify {out}"
        )


def block_of(source: Embedding, scale: float) -> dict:
    """Returns the `zero_shot` block for config.json."""
    return {
        "mode": "embedding",
        "output": OUTPUT,
        "pooling": source.pooling,
        "hypothesis_template": TEMPLATE,
        "softmax_scale": scale,
        "sigmoid_scale": scale,
        "sigmoid_bias": round(middle(source), 3),
        "max_length": source.max_tokens,
    }


def middle(source: Embedding) -> float:
    """Returns the cosine that gets a score of 0.5 in `multi`, halfway between matching and unrelated texts and labels.

    Models differ widely: the cosine of unrelated texts is near 0 for some models, and 0.7 for others.
    """
    texts = np.stack([source.vector(source.ids(text)) for text, _ in LABELLED])
    labels = np.stack([source.vector(source.ids(TEMPLATE.format(label))) for _, label in LABELLED])
    cosines = texts @ labels.T
    own = np.eye(len(LABELLED), dtype=bool)
    return float(cosines[own].mean() + cosines[~own].mean()) / 2


def built(source: Embedding) -> onnx.ModelProto:
    """Exports the graph with torch, for any number of texts of any length. Raises `GraphError`."""
    rows = [source.ids(text) for text, _ in VECTORS]
    width = max(map(len, rows))
    ids = torch.zeros((len(rows), width), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
    example = {"input_ids": ids, "attention_mask": mask}
    if getattr(source.model.config, "type_vocab_size", 0) > 1:
        example["token_type_ids"] = torch.zeros_like(ids)
    try:
        return graph_of(Pooled(source, list(example)), example, OUTPUT)
    except Exception as problem:  # the exporter raises many kinds of exceptions
        family = source.model.config.model_type
        raise GraphError(f"a model of the family {family!r} cannot be exported: {one_line(problem)}") from problem


def verify(source: Embedding, folder: Path) -> float:
    """Compares the folder with torch: each text alone, then all but the longest in one padded batch.

    The texts are the manifest's, one with about a tenth of the maximum number of tokens, and one with the maximum.
    Returns the largest error of a component of a vector. Raises `GraphError` if this error is too large, and
    `InputError` if the ids differ.
    """
    embedder = Embedder(folder)
    long = FILLER * 200
    rows = [source.ids(text) for text, _ in VECTORS]
    for (text, _), row in zip([*VECTORS, (long, "")], [*rows, source.ids(long)], strict=True):
        if embedder.tokenizer.encode(text).ids != row:
            raise InputError(
                f"`{source.folder}`: `tokenizer.json` and sentence-transformers differ in the ids for {text[:40]!r}: "
                "use a model whose `tokenizer.json` is complete"
            )
    rows += [source.ids(long, min(source.max_tokens, source.max_tokens // 10 + 16)), source.ids(long)]
    expected = np.stack([source.vector(row) for row in rows])
    error = 0.0
    for batch in batches_of(len(rows)):
        try:
            found = embedder.raw([rows[index] for index in batch])
        except Exception as problem:  # the runtime raises many kinds of exceptions
            raise GraphError(f"{GRAPH} does not run: {one_line(problem)}") from problem
        if found.shape != expected[batch].shape:
            raise GraphError(f"{GRAPH}: vectors {list(found.shape)}, but torch's are {list(expected[batch].shape)}")
        error = max(error, float(np.nan_to_num(np.abs(found - expected[batch]), nan=np.inf).max()))
    if not error <= FP32_ERROR:
        raise GraphError(f"{GRAPH} is wrong: its vectors are {error:.2g} off torch's; the limit is {FP32_ERROR:.2g}")
    return error


def first_json(folder: Path, names: list[str]) -> dict:
    """Returns the JSON object in the first of the files that exists, or an empty object."""
    for name in names:
        if (folder / name).is_file():
            content = read_json(folder / name)
            if not isinstance(content, dict):
                raise InputError(f"`{folder / name}` is not a JSON object: copy it from the model's source")
            return content
    return {}


def read_json(path: Path) -> object:
    """Reads a JSON file. Raises `InputError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"`{path.parent}` has no `{path.name}`: copy it from the model's source") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"`{path}` cannot be read: {one_line(problem)}") from None
