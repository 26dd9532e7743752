import pytest
import torch

from lexicept.neural.backbones.blocks import autocast, has_bfloat16, multiplies_bfloat16

CPU = torch.device("cpu")


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_product_is_in_bfloat16_where_wanted_and_present(monkeypatch, present, wanted):
    monkeypatch.setattr("lexicept.neural.backbones.blocks.multiplies_bfloat16", lambda: present)
    assert has_bfloat16(CPU) is present
    with autocast(CPU, wanted):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if wanted and present else torch.float32)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({}, False), ({"avx512_bf16": True}, True), ({"amx_bf16": True}, True)],
)
def test_a_cpu_that_multiplies_bfloat16(monkeypatch, capabilities, expected):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities, raising=False)
    assert multiplies_bfloat16.__wrapped__() is expected
