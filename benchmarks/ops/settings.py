"""Settings that say how much to measure: a full run, a quick run, and a smoke test."""

from dataclasses import dataclass

from benchmarks.ops.shapes import D576, D1536, D2048, D4096, TINY, ModelShape
from surefoot.ops import ONE_LIMB, TWO_LIMBS, ActivationForm
from surefoot.ops.weights import WeightFormat

MIB = 1 << 20

FORMATS = {
    "w8": WeightFormat(8, 1),
    "w8 grouped": WeightFormat(8, 2, 32),
    "w4": WeightFormat(4, 1, 32),
    "w4 wide": WeightFormat(4, 2, 32),
}
FORMS: dict[int, ActivationForm] = {2: TWO_LIMBS, 1: ONE_LIMB}  # by number of limbs


@dataclass(frozen=True)
class OpsSettings:
    """Shapes, row counts and sizes of a run."""

    headline: ModelShape  # the figures are about a layer of this model
    models: tuple[ModelShape, ...]  # models whose matrices are timed
    rows: tuple[int, ...]  # row counts
    formats: tuple[str, ...]  # keys of FORMATS
    footprint_bytes: int  # memory that the bandwidth gauge rotates over
    pool_bytes: int  # copies of a matrix in one format that its cases rotate over
    kv_bytes: int  # KV caches that the cases of attention rotate over
    context: int  # tokens, for decode
    prefills: tuple[int, ...]  # tokens
    step_models: tuple[ModelShape, ...]  # models whose decode step measures the overhead of calls
    step_context: int  # tokens, for these decode steps
    seconds: float  # for everything, preparation included
    sample_bytes: int = 48 * MIB  # read by a sample of a case; at least one matrix
    sample_seconds: float = 0.004  # of a sample at the machine's peak; at least one call


FULL = OpsSettings(
    headline=D2048,
    models=(D576, D1536, D2048, D4096),
    rows=(1, 2, 4, 8, 16, 32, 64, 128, 512, 2048),
    formats=tuple(FORMATS),
    footprint_bytes=1024 * MIB,
    pool_bytes=64 * MIB,
    kv_bytes=512 * MIB,
    context=4096,
    prefills=(2048, 8192),
    step_models=(D576, D1536),
    step_context=512,
    seconds=600,
)
QUICK = OpsSettings(
    headline=D2048,
    models=(D2048,),
    rows=(1, 4, 8, 512),
    formats=("w8", "w4"),
    footprint_bytes=512 * MIB,
    pool_bytes=128 * MIB,
    kv_bytes=256 * MIB,
    context=4096,
    prefills=(2048,),
    step_models=(D576,),
    step_context=512,
    seconds=42,
)
SMOKE = OpsSettings(
    headline=TINY,
    models=(TINY,),
    rows=(1, 4, 512),
    formats=("w8", "w4"),
    footprint_bytes=4 * MIB,
    pool_bytes=MIB // 4,
    kv_bytes=MIB // 4,
    context=256,
    prefills=(128,),
    step_models=(TINY,),
    step_context=64,
    seconds=2,
    sample_bytes=MIB // 16,
    sample_seconds=0.0001,
)
