"""The Python rungs of the ladder: Hugging Face's pipeline and plain torch."""

import time
from collections.abc import Callable, Iterator

Scores = list[list[float]]
ROWS = 16
"""Pairs in a batch."""
TOKENS = 16_384
"""Padded tokens in a batch of the sorting rung, as many as topicmill uses on a GPU."""


def timed(run: Callable[[list[str]], Scores], texts: list[str]) -> tuple[float, Scores]:
    """Returns the seconds and the scores of a run."""
    start = time.perf_counter()
    scores = run(texts)
    return time.perf_counter() - start, scores


def make(job: dict) -> tuple[dict[str, Callable[[list[str]], Scores]], dict[str, str]]:
    """Returns every rung that the job allows, by name, and the library versions."""
    import torch
    import transformers
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    torch.set_num_threads(job["threads"])
    device = job["device"]
    model = AutoModelForSequenceClassification.from_pretrained(job["hf"], dtype=torch.float32).eval().to(device)
    tokenizer = AutoTokenizer.from_pretrained(job["hf"], model_max_length=job["max_tokens"])
    reference = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer, device=device)
    settings = {
        "candidate_labels": job["labels"],
        "hypothesis_template": job["template"],
        "multi_label": False,
    }
    batched = settings | {"batch_size": ROWS}
    runs = {
        "pipeline": lambda texts: [in_order(reference(text, **settings), job["labels"]) for text in texts],
        "pipeline-batches": lambda texts: [in_order(one, job["labels"]) for one in reference(texts, **batched)],
        "direct-mixed": lambda texts: mixed(job, model, tokenizer, texts),
        "direct": lambda texts: direct(job, model, tokenizer, texts),
        "direct-bf16": lambda texts: direct(job, half, tokenizer, texts),
    }
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    half = AutoModelForSequenceClassification.from_pretrained(job["hf"], dtype=torch.bfloat16).eval().to(device)
    if device != "cpu" or "sorted-fp16" in job["asked"]:  # few CPUs compute in float16 at all
        whole = AutoModelForSequenceClassification.from_pretrained(
            job["hf"], dtype=torch.float16, attn_implementation="sdpa"
        )
        whole = whole.eval().to(device)
        runs["sorted-fp16"] = lambda texts: in_order_of_length(job, whole, tokenizer, texts)
    return runs, versions


def in_order(found: dict, labels: list[str]) -> list[float]:
    """Returns the scores of one sorted pipeline result in the order of the labels."""
    by_label = dict(zip(found["labels"], found["scores"], strict=True))
    return [by_label[label] for label in labels]


def encoded(job: dict, tokenizer, texts: list[str]) -> Iterator[dict]:
    """Yields the pairs of each text in batches of at most `rows`, padded to the longest."""
    hypotheses = [job["template"].format(label) for label in job["labels"]]
    for text in texts:
        for start in range(0, len(hypotheses), ROWS):
            part = hypotheses[start : start + ROWS]
            pairs = [[text] * len(part), part]
            yield tokenizer(*pairs, truncation="only_first", padding=True, return_tensors="pt")


def direct(job: dict, model, tokenizer, texts: list[str]) -> Scores:
    """Runs one forward pass for the pairs of a text."""
    import torch

    with torch.inference_mode():
        batches = (batch.to(job["device"]) for batch in encoded(job, tokenizer, texts))
        logits = [model(**batch).logits.float() for batch in batches]
    return scores(job, model.config, torch.cat(logits).cpu(), len(texts))


def mixed(job: dict, model, tokenizer, texts: list[str]) -> Scores:
    """Runs one forward pass for `rows` texts, unsorted, and one label, padded to the longest."""
    import torch

    logits = []
    with torch.inference_mode():
        for label in job["labels"]:
            for start in range(0, len(texts), ROWS):
                part = texts[start : start + ROWS]
                pairs = [part, [job["template"].format(label)] * len(part)]
                batch = tokenizer(*pairs, truncation="only_first", padding=True, return_tensors="pt")
                logits.append(model(**batch.to(job["device"])).logits.float())
    by_label = torch.cat(logits).cpu().reshape(len(job["labels"]), len(texts), -1)
    return scores(job, model.config, by_label.transpose(0, 1), len(texts))


def in_order_of_length(job: dict, model, tokenizer, texts: list[str]) -> Scores:
    """Runs all pairs, the longest first, in batches within a token budget: plain torch at its best."""
    import torch

    hypotheses = [job["template"].format(label) for label in job["labels"]]
    pairs = [(text, hypothesis) for text in texts for hypothesis in hypotheses]
    encoded = tokenizer(*map(list, zip(*pairs, strict=True)), truncation="only_first")
    rows = [{name: values[row] for name, values in encoded.items()} for row in range(len(pairs))]
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]["input_ids"]))
    logits = [None] * len(rows)
    with torch.inference_mode():
        while order:
            most = max(1, TOKENS // len(rows[order[0]]["input_ids"]))
            part, order = order[:most], order[most:]
            batch = tokenizer.pad([rows[row] for row in part], return_tensors="pt").to(job["device"])
            for row, of_row in zip(part, model(**batch).logits.float().cpu(), strict=True):
                logits[row] = of_row
    return scores(job, model.config, torch.stack(logits), len(texts))


def scores(job: dict, config, logits, texts: int) -> Scores:
    """Returns the pipeline's scores for logits, text by text."""
    classes = {name.lower(): number for name, number in config.label2id.items()}
    entailment = next(number for name, number in classes.items() if name.startswith("entail"))
    contradiction = -1 if entailment == 0 else 0
    by_text = logits.reshape(texts, len(job["labels"]), -1)
    if len(job["labels"]) == 1:
        return by_text[:, :, [contradiction, entailment]].softmax(-1)[..., 1].tolist()
    return by_text[:, :, entailment].softmax(-1).tolist()
