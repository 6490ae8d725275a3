"""Programs as users write them, which know nothing of detmatrix; tests of ``locate`` run them."""
