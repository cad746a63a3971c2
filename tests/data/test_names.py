"""Names come with a table from anybody: in a model's source they are texts, and no part of the program."""

import ast

import pytest

import private_mcmc as pmc
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.fields import identifier
from private_mcmc.data.formula import read_formula
from private_mcmc.data.source import compile_model, model_source

RANGE = {"constraints": {"minimum": "1", "maximum": "9"}}
LEVELS = {"constraints": {"enum": ["a", "b", "c"]}}
MARGINAL = {"private_mcmc": {"missing": "marginal"}}
PLAIN = "plain"
NAMES = (
    'a" + exit() + "',
    "a' + exit() + '",
    'a", dist.Normal(0, 1))\nexit()\n("',
    "a\rexit()",
    "a\x0cexit()",
    "a\u2028exit()",
    'a"""\nexit()\n"""',
    "a\\",
    "a\\N{BULLET}",
    "{a}",
    "%s",
    "a#",
    "a\x00b",
    "a\ud800b",
    "x\u00b2",
    "\u00bd",
    "\ufb01eld",
    "2019",
    "lambda",
    "jax",
    "__debug__",
)
# Of a field and of a group, what the model's source makes a name of.
KINDS = {
    "number": ({"type": "number", **RANGE}, "died ~ `{}`"),
    "transformed": ({"type": "number", **RANGE}, "died ~ log(`{}`) + I(`{}` ^ 2)"),
    "missing number": ({"type": "number", **RANGE, "private_mcmc": {"missing": "indicator"}}, "died ~ `{}`"),
    "marginal number": ({"type": "number", **RANGE, **MARGINAL}, "died ~ `{}`"),
    "category": ({"type": "string", **LEVELS}, "died ~ `{}`"),
    "marginal category": ({"type": "string", **LEVELS, **MARGINAL}, "died ~ `{}`"),
    "group": ({"type": "string", **LEVELS}, "died ~ age + (1 + age | `{}`)"),
    "outcome": ({"type": "boolean"}, "`{}` ~ age"),
    "offset": ({"type": "number", **RANGE}, "died ~ age + offset(`{}`)"),
}


def source(kind, name):
    field, formula = KINDS[kind]
    others = [{"name": "died", "type": "boolean"}, {"name": "age", "type": "number", **RANGE}]
    schema = pmc.Schema.from_dict({"fields": [*others, {"name": name, **field}]})
    return model_source(
        design(read_formula(formula.replace("{}", name), schema), schema, family("bernoulli"))
    )


def skeleton(text, name):
    """The program without its texts and imports, and with one name for the field and for what it lacks."""
    words = {identifier(f"{name}_missing"): "MISSING", identifier(name): "FIELD"}

    def renamed(found):
        for word, instead in words.items():
            found = found.replace(word, instead)
        return found

    class Bare(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.Constant("") if isinstance(node.value, str) else node

        def visit_Import(self, node):
            return None

        def visit_Name(self, node):
            return ast.Name(renamed(node.id), node.ctx)

        def visit_arg(self, node):
            return ast.arg(renamed(node.arg))

    return ast.dump(Bare().visit(ast.parse(text)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_never_a_part_of_the_program(kind, name):
    """A field of the name ``a" + exit() + "`` ran what it said, where missing values are integrated over."""
    try:
        found = source(kind, name)
    except pmc.DeclarationError:
        return  # a formula that cannot name it
    compile_model(found)
    assert skeleton(found, name) == skeleton(source(kind, PLAIN), PLAIN)


@pytest.mark.parametrize("name", NAMES)
def test_a_column_has_the_name_that_python_reads(name):
    word = identifier(name)
    (argument,) = ast.parse(f"def f({word}): pass").body[0].args.args
    assert argument.arg == word


@pytest.mark.parametrize(
    ("outcome", "kind", "formula"),
    [
        ("mu", "gaussian", "mu ~ age"),
        ("sigma", "gaussian", "sigma ~ age"),
        ("sigma", "gaussian", "age ~ sigma"),
        ("trials", "binomial", "trials | trials(age) ~ 1"),
    ],
)
def test_a_field_with_the_name_of_something_else_in_the_model_is_refused(outcome, kind, formula):
    """The model observed its own mean, or a constant, in place of the outcome."""
    number = {"type": "integer", "constraints": {"minimum": "0", "maximum": "9"}}
    number = number if kind == "binomial" else {"type": "number", **RANGE}
    schema = pmc.Schema.from_dict({"fields": [{"name": name, **number} for name in (outcome, "age")]})
    with pytest.raises(pmc.DeclarationError, match="rename"):
        model_source(design(read_formula(formula, schema), schema, family(kind)))


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x00", "\x9b2J", "\x90$q", "\x9d0;", "\x7f"])
@pytest.mark.parametrize("word", ["name", "title", "unit", "bounds_from"])
def test_terminals_are_told_nothing_by_the_words_of_a_field(word, sign):
    words = {"name": "age", word: f"age{sign}"}
    with pytest.raises(pmc.DeclarationError, match="control signs") as refused:
        pmc.Field(type="number", minimum=0.0, maximum=9.0, **words)
    assert sign not in str(refused.value)
    with pytest.raises(pmc.DeclarationError, match="control signs"):
        pmc.Field("sex", "string", levels=(pmc.Level("f", "female"), pmc.Level("m", f"male{sign}")))


def test_quotes_of_windows_in_another_encoding_are_taken():
    """As codebooks of old have them; they begin no sequence."""
    assert pmc.Field("age", "number", title="person\x92s age", minimum=0.0, maximum=9.0).title
