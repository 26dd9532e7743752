"""Dot products of whole numbers, which are exact in any order."""

from __future__ import annotations

import numpy as np

from lexicept.kernels.compiled import by_work, compiled
from lexicept.vectors import Floats, Integers

PRODUCT_SECONDS = 1e-9
"""Approximate seconds of ``products_reference`` per product."""


def dot_products(rows: Integers, steps: Integers) -> Floats:
    """Return the products of rows, i8 [n, d], and a vector, i32 [d]: f32 [n]. Their sums must stay
    below 2²⁴. A process's first products are those of the reference, later ones the kernel's."""
    kernel = by_work(rows.size * PRODUCT_SECONDS, write_products, products_reference)
    products = np.empty(len(rows), np.float32)
    kernel(rows, steps, products)
    return products


def products_reference(rows: Integers, steps: Integers, products: Floats) -> None:
    """Write the products of rows, i8 [n, d], and a vector, i32 [d]."""
    np.einsum("ij,j->i", rows.astype(np.float32), steps.astype(np.float32), out=products)


@compiled()
def write_products(rows, steps, products):
    """Compiled version of ``products_reference``."""
    for i in range(rows.shape[0]):
        total = np.int32(0)
        for j in range(steps.size):
            total += np.int32(rows[i, j]) * steps[j]
        products[i] = total
