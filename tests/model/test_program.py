"""A flattened program computes what the function does, and knows what it reads."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.errors import DoThisInstead
from private_mcmc.model.program import name_of, trace
from private_mcmc.potential.rowwise import abstract


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


def test_programs_are_alike_by_what_they_compute_and_not_by_when_they_were_traced():
    def made(slope):
        chosen = partial(jax.lax.cond, True, lambda x: slope * jax.nn.softplus(x).sum(), jnp.sum)
        program = trace(lambda x: {"y": chosen(x)}, x=vector())
        return program.operations(program.outputs["y"])

    with jax.enable_x64(True):
        assert made(3.0) == made(3.0) != made(4.0)


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


@pytest.mark.parametrize(
    "odd",
    [
        lambda a: a.at[0].apply(lambda t: t + 99.0),
        lambda a: jax.lax.reshape(a, (4,), dimensions=(1, 0)),
        lambda a: jnp.dot(a, a, precision="F32_F32_F32"),
        lambda a: jax.lax.rem((3 * a).astype(int), jnp.arange(4).reshape(2, 2)),
    ],
    ids=["applied", "transposed", "narrowed", "remainders of zero"],
)
def test_what_a_primitive_s_name_does_not_say_is_left_to_jax(odd):
    """Read by names alone a prior of scale 100 was one of scale 1: certificates were 100 times too small."""
    array = np.array([[1.0, 2.0], [3.0, 4.2]])
    with jax.enable_x64(True):
        expected = np.asarray(odd(jnp.asarray(array)))
        program = trace(lambda a: {"constant": odd(jnp.asarray(array)), "value": odd(a)}, a=array)
        for name in ("constant", "value"):
            np.testing.assert_array_equal(program.evaluate([name], a=array)[0], expected)
        np.testing.assert_array_equal(program.evaluate(["value"], True, a=array[None])[0][0], expected)


# What the rules of ``program.py`` read of a primitive, or need not know.
KNOWN = {
    *("axes", "axis", "broadcast_dimensions", "dimension", "dimension_numbers", "left_side", "limit_indices"),
    *("lower", "mode", "new_dtype", "padding_config", "permutation", "preferred_element_type", "reverse"),
    *("slice_sizes", "start_indices", "strides", "transpose_a", "unit_diagonal", "y", "shape", "sizes"),
    *("new_sizes", "dtype", "accuracy", "conjugate_a", "fill_value", "indices_are_sorted", "is_stable"),
    *("num_keys", "out_sharding", "sharding", "unique_indices", "update_consts", "weak_type"),
    # As in ``program._UNREAD``, or read by one primitive only.
    *("dimensions", "update_jaxpr", "out_dtype", "precision"),
}


def test_primitives_have_no_parameters_that_nobody_reads():
    """A parameter that a new JAX adds may change what a primitive does under its old name."""

    def everything(a, i):
        yield from (
            getattr(jax.lax, name)(a) for name in ("exp", "log", "tanh", "lgamma", "erf_inv", "rsqrt")
        )
        yield from (a + a, a - a, a * a, a / a, jax.lax.pow(a, a), jax.lax.rem(a, a), jax.lax.max(a, a), a**3)
        yield from (a.sum(0), a.prod(0), a.max(0), (a > 0).all(0), jnp.cumsum(a, 0), jnp.cumprod(a, 0), a @ a)
        yield from (a[i], a.at[i].set(0.0), a.at[i].add(0.0), jax.lax.dynamic_slice(a, (i[0], 0), (1, 1)))
        yield from (
            a.reshape(4),
            a.T,
            a[::-1],
            a[:1],
            a[None],
            a[:1].squeeze(0),
            jnp.pad(a, 1),
            a.astype(int),
        )
        yield from (jnp.sort(a), jnp.linalg.cholesky(a), jnp.stack([a, a]), jnp.concatenate([a, a]))
        yield from (jnp.split(a, 2)[0], jnp.where(a > 0, a, -a), jnp.clip(a, 0, 1), jax.lax.iota(int, 3), ~i)
        yield from (jax.lax.dynamic_update_slice(a, a[:1], (0, 0)), jax.scipy.linalg.solve_triangular(a, a))

    program = trace(lambda a, i: dict(enumerate(everything(a, i))), a=np.eye(2), i=np.arange(2))
    names = {name_of(equation) for equation in program.equations}
    found = {name for equation in program.equations for name in equation.params}
    assert {"scatter", "gather", "dot_general", "reshape", "sort"} <= names
    assert found <= KNOWN


def test_arrays_that_are_written_to_later_change_no_program():
    """Between a decision and its run: a prior of another scale ran at the price of the first.

    ``jnp.asarray`` makes no copy of an array that lies where XLA wants it.
    """
    memory = np.ones(64)
    scale = memory[-(memory.ctypes.data // 8) % 8 :][:2]
    shared = jnp.asarray(scale)

    @jax.custom_jvp
    def custom(x):
        return x * scale

    custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0] * scale))

    def parts(x):
        yield from (x * scale, custom(x), jax.jit(lambda v: v - scale)(x), x * scale[1])
        yield jax.lax.cond(x[0] > 0, lambda v: v * scale, lambda v: v - scale[:1], x)
        yield jax.lax.while_loop(lambda v: v[0] < 9.0, lambda v: v + scale, x)
        yield from (x * shared, jax.jit(lambda v: v - shared)(x))

    with jax.enable_x64(True):
        program = trace(lambda x: dict(enumerate(parts(x))), x=np.ones(2))

        def values():
            return [
                *map(np.asarray, program.run(program.outputs.values(), {program.inputs["x"]: np.ones(2)}))
            ]

        before = values()
        scale[:] = 7.0
        np.testing.assert_array_equal(values(), before)


def test_a_function_that_is_traced_again_runs_as_the_same_program():
    """What runs is hashed, saved with plans and checkpoints, and compared: no order is that of a set."""
    names = [f"column{number}" for number in range(12)]

    def run():
        shapes = {name: abstract((), np.int64) for name in names}
        program = trace(lambda **row: {"sum": sum(jnp.sin(value) for value in row.values())}, **shapes)
        given = {program.inputs[name]: jnp.asarray(1) for name in names}
        return str(jax.make_jaxpr(lambda: program.run([program.outputs["sum"]], given))())

    with jax.enable_x64(True):
        assert len({run() for _ in range(8)}) == 1
