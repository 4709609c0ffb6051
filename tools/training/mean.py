"""A BERT classifier that reads the normalized mean of all tokens' states instead of the first token's state.

The vectors of the default model are such means. A linear head on its frozen vectors is therefore a classifier of this
shape, and fine-tuning starts from these vectors.
"""

import torch
from torch.nn import functional
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

POOLING = "topicmill_pooling"
MEAN = "mean"


class MeanBertForSequenceClassification(BertPreTrainedModel):
    """An encoder without a pooler, the mean, and one linear layer."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        setattr(config, POOLING, MEAN)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def vectors(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **types) -> torch.Tensor:
        """Returns the vectors of texts: ids [rows, width] in, [rows, D] of length 1 out."""
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
        if attention_mask is None:
            mean = states.mean(1)
        else:
            real = attention_mask.unsqueeze(-1).to(states.dtype)
            mean = (states * real).sum(1) / real.sum(1)
        return functional.normalize(mean.float(), dim=-1)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Returns logits [rows, classes], and with `labels` the cross-entropy."""
        vectors = self.vectors(input_ids, attention_mask, token_type_ids=token_type_ids)
        with torch.autocast(vectors.device.type, enabled=False):  # logits in float32 cost little
            logits = functional.linear(vectors, self.classifier.weight.float(), self.classifier.bias.float())
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)
