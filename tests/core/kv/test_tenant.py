"""A tenant has one name everywhere, and its salt can't be read off it."""

from antiphon.core.kv import MAX_SALT_BYTES, TENANT_BYTES, BlockKeys, tenant_of


def test_the_name_is_the_same_everywhere_and_for_ever() -> None:
    assert tenant_of(b"").hex() == "19e235cbbc1a1fbe86aa7485f1a8c826"
    assert tenant_of(b"a digest of a key").hex() == "83ac96cbd1cae0434c614909380b7987"


def test_other_salts_are_other_tenants_and_salts_of_any_length_have_names() -> None:
    salts = [b"", b"a", b"b", b"a\0", bytes(MAX_SALT_BYTES), bytes(1000)]
    names = {tenant_of(salt) for salt in salts}
    assert len(names) == len(salts)
    assert {len(name) for name in names} == {TENANT_BYTES}


def test_a_name_is_no_part_of_a_key() -> None:
    """Whoever sees a tenant's name can't guess its keys from it."""
    salt = b"a digest of a key"
    keys = BlockKeys(identity=bytes(32), numerics="x", salt=salt, block_tokens=1)
    named = BlockKeys(identity=bytes(32), numerics="x", salt=tenant_of(salt), block_tokens=1)
    assert salt not in tenant_of(salt) and keys.key(None, (1,)) != named.key(None, (1,))
