"""Passes side by side give what passes one after the other give."""

import pytest
import torch

from tests.lm.test_validate import some_documents, token_set
from tests.lm.tiny_models import llama_config, make_model
from trajsoup.lm.passes import forward_passes
from trajsoup.lm.validate import ValidationSettings, document_losses


def test_no_bit_depends_on_the_number_of_cores():
    model, before = make_model(llama_config()), torch.get_num_threads()
    settings, found = ValidationSettings(window=32, batch_tokens=64), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(document_losses(model, token_set(*some_documents()), settings=settings).nll.tolist())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_results_come_in_order_and_an_error_is_raised_as_itself():
    model, before = make_model(llama_config()), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert list(forward_passes(model, 8, lambda n: (n, torch.is_inference_mode_enabled()), range(20))) == [
            (n, True) for n in range(20)
        ]
        with pytest.raises(ZeroDivisionError):
            list(forward_passes(model, 8, lambda n: 1 // n, range(20)))
    finally:
        torch.set_num_threads(before)
