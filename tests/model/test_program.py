"""A flattened program computes what the function does, and knows what it reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.errors import DoThisInstead
from private_mcmc.model.ir.flatten import abstract, trace


def vector(size=3):
    return abstract((size,), np.float64)


def function(x, i):
    smooth = jax.nn.softplus(x).sum() + jax.nn.logsumexp(x) + jax.nn.log_sigmoid(x[1])
    looped = jax.lax.fori_loop(0, 3, lambda _, total: total * 0.5 + x[0], 0.0)
    chosen = jax.lax.cond(x[0] > 0, lambda v: v[1], lambda v: v[2], x)
    return {"a": smooth + jnp.take(x, i) + looped + jax.scipy.special.xlogy(2.0, 1 + x[0] ** 2), "b": chosen}


@pytest.mark.long
def test_it_computes_the_function_and_its_derivatives():
    with jax.enable_x64(True):
        program = trace(function, x=vector(), i=abstract((), np.int64))

        def run(x):
            given = {program.inputs["x"]: x, program.inputs["i"]: 1}
            return dict(zip(program.outputs, program.run(program.outputs.values(), given), strict=True))

        for x in (jnp.array([0.3, -2.0, 1.0]), jnp.array([-800.0, 0.0, 800.0])):
            for name in ("a", "b"):
                np.testing.assert_allclose(run(x)[name], function(x, 1)[name], rtol=1e-12)
                ours = jax.jit(jax.grad(lambda v, n=name: run(v)[n]))(x)
                np.testing.assert_allclose(ours, jax.grad(lambda v, n=name: function(v, 1)[n])(x), rtol=1e-12)


def test_it_reads_only_what_a_result_depends_on():
    program = trace(
        lambda x, y, z: {"xy": x @ y, "x": x.sum() + 0 * y.shape[0], "none": jnp.ones(2)},
        x=vector(),
        y=vector(),
        z=vector(),
    )
    reads = {name: program.reads([variable]) for name, variable in program.outputs.items()}
    assert reads == {"xy": {"x", "y"}, "x": {"x"}, "none": frozenset()}


@pytest.mark.slow
def test_a_cut_hides_what_lies_behind_it():
    with jax.enable_x64(True):
        program = trace(lambda x, y: {"eta": x @ y, "out": jnp.exp(x @ y) + y[0]}, x=vector(), y=vector())
        eta, out = program.outputs["eta"], program.outputs["out"]
        assert program.reads([out], [eta]) == {"y"}
        y = np.arange(3.0)
        value = program.run([out], {eta: 0.5, program.inputs["y"]: y})[0]
    assert value == pytest.approx(np.exp(0.5))


def test_equal_subexpressions_are_one_variable():
    program = trace(
        lambda x, y: {"one": jnp.sin(x @ y), "two": jnp.sin(jnp.dot(x, y))}, x=vector(), y=vector()
    )
    assert program.outputs["one"] == program.outputs["two"]


def test_the_text_is_of_the_function_and_not_of_its_surroundings():
    plain = trace(lambda x: {"out": jnp.tanh(x * 2).sum()}, x=vector())
    busy = trace(lambda x: {"aside": jnp.cos(x), "out": jnp.tanh(x * 2).sum()}, x=vector())
    other = trace(lambda x: {"out": jnp.tanh(x * 3).sum()}, x=vector())
    texts = [program.text([program.outputs["out"]]) for program in (plain, busy, other)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    "leak",
    [
        lambda x: jax.debug.print("{}", x),
        lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        lambda x: jax.jit(lambda v: jax.debug.print("{}", v))(x),
        lambda x: jax.lax.cond(x[0] > 0, lambda: jax.debug.print("{}", x), lambda: None),
    ],
)
def test_a_program_that_talks_to_python_is_refused(leak):
    def talkative(x):
        result = leak(x)
        return {"out": x.sum() if result is None else x.sum() + result.sum()}

    with pytest.raises(DoThisInstead, match="prints or calls back"):
        trace(talkative, x=vector())


def test_the_text_of_a_result_does_not_depend_on_what_else_the_program_computes_first():
    def first(a):
        wide = jnp.broadcast_to(a, (1,))
        return {"out": jnp.exp(2 * a) + jnp.broadcast_to(a, (1,)), "wide": wide}

    def later(a):
        return {"out": jnp.exp(2 * a) + jnp.broadcast_to(a, (1,)), "wide": jnp.broadcast_to(a, (7,))}

    programs = [trace(function, a=abstract((), np.float32)) for function in (first, later)]
    one, other = (program.text([program.outputs["out"]]) for program in programs)
    assert one == other
