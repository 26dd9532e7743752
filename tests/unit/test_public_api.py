"""The names of ``import lexicept``."""

import importlib

import pytest

import lexicept

NAMES = ["Document", "Index", "LexiceptError", "build", "open"]


def test_the_names_are_few_and_known():
    assert set(NAMES) <= set(lexicept.__all__)
    assert len(lexicept.__all__) <= 16
    assert lexicept.__all__ == sorted(set(lexicept.__all__))
    assert set(lexicept._HOMES) == set(lexicept.__all__)
    assert set(lexicept.__all__) <= set(dir(lexicept))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_object_of_its_module(name):
    home = importlib.import_module(lexicept._HOMES[name])
    assert getattr(lexicept, name) is getattr(home, name)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'lexicept' has no attribute 'Indx'"):
        _ = lexicept.Indx
    assert not hasattr(lexicept, "__wrapped__")
    with pytest.raises(ImportError):
        exec("from lexicept import Indx")


def test_every_error_is_a_lexicept_error():
    errors = importlib.import_module("lexicept.errors")
    assert issubclass(errors.InputError, lexicept.LexiceptError)
    assert issubclass(errors.IndexFormatError, lexicept.LexiceptError)
    assert issubclass(errors.InputError, ValueError)
