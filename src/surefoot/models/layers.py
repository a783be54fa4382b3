"""The layer of most families: what mixes tokens, by attention or by a state, then what feeds forward."""

from dataclasses import dataclass
from typing import Protocol

from surefoot.models.feed_forward import Feed, feed_forward
from surefoot.models.linear import Linear
from surefoot.models.step import Norm, Step
from surefoot.models.workspace import Features


class Mixer(Protocol):
    """What mixes tokens in the first half of a layer."""

    @property
    def reads(self) -> tuple[Linear, ...]:
        """The matrices that read the normed stream."""

    @property
    def out(self) -> Linear:
        """The matrix that leads back to the stream."""

    def __call__(self, step: Step, x: Features) -> Features:
        """What is made of the normed stream, in the form that `out` takes."""


def mix(step: Step, normed: Norm, mixer: Mixer) -> None:
    """Adds what the mixer makes of the normed stream."""
    step.add_projected(mixer.out, mixer(step, step.norm(normed, *mixer.reads)))


@dataclass(frozen=True)
class PreNormLayer:
    """A layer of norm, mixer, norm, feed-forward or experts or both."""

    mixer_norm: Norm  # before the mixer
    mixer: Mixer  # attention, or a state
    ffn_norm: Norm  # before the feeds
    feeds: tuple[Feed, ...]  # feed-forward, experts

    def __call__(self, step: Step) -> None:
        mix(step, self.mixer_norm, self.mixer)
        feed_forward(step, self.ffn_norm, *self.feeds)
