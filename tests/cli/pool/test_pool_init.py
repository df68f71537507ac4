"""`muster pool init`: a configuration in which every field of the models is explained, and which works."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from cli.pool.config import environment_parameters, model_config, parameter, pool_config, pool_file
from cli.profile import Profile
from protocol.config import BF16_CHECKS, PoolConfig
from protocol.encoding import Document, parse_document
from protocol.errors import ConfigError, IntegrityError
from protocol.evidence.null_model import EvidenceConfig
from tests.cli.muster import Muster

ENVIRONMENT = "reasoning_gym/chain_sum"


def models(kind: type[Document]) -> Iterator[type[Document]]:
    """A model and all that its fields hold, whatever union or tuple they are in."""

    def within(annotation: object) -> Iterator[type[Document]]:
        if isinstance(annotation, type) and issubclass(annotation, Document) and annotation is not EvidenceConfig:
            yield from models(annotation)
        for inner in get_args(annotation):
            yield from within(inner)

    yield kind
    for field in kind.model_fields.values():
        yield from within(field.annotation)


def folder(path: Path, **config: object) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "qwen2", **config}))
    return path


def test_every_field_of_pool_and_profile_is_described() -> None:
    known: set[type[Document]] = {*models(PoolConfig), *models(Profile)}
    assert len(known) > 18
    for kind in known:
        for name, field in kind.model_fields.items():
            assert field.description, f"{kind.__name__}.{name}"
            assert field.description.endswith(".")


def test_the_file_holds_every_field_with_its_explanation_bounds_and_default(tmp_path: Path) -> None:
    config = pool_config(folder(tmp_path / "m"), ENVIRONMENT, {"min_terms": 3}, None)
    text = pool_file(config, environment_parameters(ENVIRONMENT))
    assert max(map(len, text.splitlines())) <= 120
    words = " ".join(text.replace("\n# ", "\n").split())
    lines = text.splitlines()
    for kind in models(PoolConfig):
        for name, field in kind.model_fields.items():
            assert str(field.description) in words, f"{kind.__name__}.{name}"
            assert [one for one in lines if one.removeprefix("# ").startswith(f"{name} =") or f"{name}]" in one], name
    assert "# Answers to each problem. A file holds the product of both. (at least 1;" in text
    assert "(above 0; below 1; default 0.5)\nunsure_band = 0.5" in text
    assert "min_terms = 3\n# max_terms = 6" in text


def test_what_is_written_reads_as_what_was_meant_and_a_commented_table_can_be_switched_on(tmp_path: Path) -> None:
    quoted = 'a "quoted" name \\ ü'
    config = pool_config(folder(tmp_path / "m"), ENVIRONMENT, {"min_terms": 3, "allow_negation": True}, quoted)
    read = parse_document(pool_file(config, {}).encode(), PoolConfig, "it", toml=True)
    assert read == config
    assert read.digest == config.digest
    named = config.model_copy(update={"evidence": EvidenceConfig(engines=("vllm:bfloat16:cpu",), own_engine=True)})
    assert parse_document(pool_file(named, {}).encode(), PoolConfig, "it", toml=True) == named
    text = pool_file(pool_config(tmp_path / "m", ENVIRONMENT, {}, None), {})
    lora = "# [train.lora]\n# Rank of the additions. (at least 1; at most 1024; default 16)\n# rank = 16\n"
    assert lora in text
    on = text.replace(lora, "[train.lora]\nrank = 8\n")
    read = parse_document(on.encode(), PoolConfig, "it", toml=True)
    assert read.train.lora is not None
    assert read.train.lora.rank == 8


def test_dtype_thresholds_and_chat_template_are_the_models_own(tmp_path: Path) -> None:
    half = folder(tmp_path / "half", torch_dtype="bfloat16")
    (half / "chat_template.jinja").write_text("{{ messages }}")
    config = pool_config(half, ENVIRONMENT, {}, None)
    assert (config.model.dtype, config.model.chat_template, config.name) == ("bfloat16", True, "half")
    assert config.checks == BF16_CHECKS
    assert not model_config(folder(tmp_path / "plain", dtype="float32")).chat_template
    with pytest.raises(ConfigError, match="there is no folder"):
        model_config(tmp_path / "none")
    (half / "config.json").write_text("[1]")
    with pytest.raises(IntegrityError, match="holds no JSON object"):
        model_config(half)


def test_parameters_are_json_or_text() -> None:
    read = dict(map(parameter, ("a=3", "b=0.5", "c=[1, 2]", "d=easy", 'e="3"', "f=x=y")))
    assert read == {"a": 3, "b": 0.5, "c": [1, 2], "d": "easy", "e": "3", "f": "x=y"}
    for wrong in ("a", "=3", "a b=3"):
        with pytest.raises(ConfigError, match="NAME=VALUE"):
            parameter(wrong)


def test_init_then_check(tmp_path: Path) -> None:
    muster, out = Muster(tmp_path), tmp_path / "pool.toml"
    order = ("pool", "init", "--model", folder(tmp_path / "model"), "--out", out)
    assert "has no parameter `min_turms`" in muster.refused(*order, "--env", ENVIRONMENT, "--param", "min_turms=3")
    assert not out.exists()
    made = muster.ok(*order, "--env", ENVIRONMENT, "--param", "min_terms=3", "--json").json
    assert made["config_hash"] == PoolConfig.load(out).digest.hex()
    assert PoolConfig.load(out).model.source == "model"
    assert str(tmp_path) not in out.read_text(), "every node would see where the owner keeps the model"
    check = ("pool", "check", "--config", out, "--terms", "local", "--budget", "1000")
    assert "this pool can work" in muster.ok(*check).out
    assert "--force" in muster.refused(*order, "--env", ENVIRONMENT)
    muster.ok(*order, "--env", "lookup", "--force")
    assert [environment.name for environment in PoolConfig.load(out).environments] == ["lookup"]
