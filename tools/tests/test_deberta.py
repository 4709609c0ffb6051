"""Tests that the attention of DeBERTa that is exported returns the states of transformers."""

import itertools
import unittest
from types import SimpleNamespace

import torch
from transformers import DebertaV2Config, DebertaV2Model

from models.deberta import exportable, masked


class Attention(unittest.TestCase):
    """Compares both on a padded batch that is longer than the buckets."""

    def test_states_equal_those_of_transformers(self):
        """With each kind of score, shared or own projections, and buckets or plain distances."""
        kinds = (["p2c", "c2p"], ["c2p"], ["p2c"])
        for share, kind, buckets in itertools.product((True, False), kinds, (32, -1)):
            with self.subTest(share=share, kind=kind, buckets=buckets), torch.no_grad():
                torch.manual_seed(1)
                config = DebertaV2Config(
                    vocab_size=100,
                    hidden_size=32,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    intermediate_size=64,
                    relative_attention=True,
                    position_buckets=buckets,
                    max_relative_positions=-1,
                    max_position_embeddings=64,
                    norm_rel_ebd="layer_norm",
                    share_att_key=share,
                    pos_att_type=kind,
                    position_biased_input=False,
                    type_vocab_size=0,
                )
                model = DebertaV2Model(config).eval()
                for weight in model.parameters():
                    torch.nn.init.normal_(weight, 0, 0.3)
                ids, mask = torch.randint(0, 100, (2, 90)), torch.ones(2, 90, dtype=torch.long)
                mask[1, 50:] = 0
                expected = model(ids, attention_mask=mask)[0]
                with exportable(SimpleNamespace(config=config, max_tokens=128)):
                    found = model(ids, attention_mask=mask)[0]
                again = model(ids, attention_mask=mask)[0]
                torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)
                torch.testing.assert_close(again, expected, atol=0, rtol=0)

    def test_padding_is_finite_in_every_number_format(self):
        """An infinite value times 0 is NaN."""
        for dtype in (torch.float16, torch.bfloat16):
            value = masked(torch.tensor([[1, 0]])).to(dtype)
            self.assertTrue(value.isfinite().all())
            self.assertEqual(torch.softmax(value.float(), -1)[..., 1].item(), 0)


if __name__ == "__main__":
    unittest.main()
