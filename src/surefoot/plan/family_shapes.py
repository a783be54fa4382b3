"""Shapes of families whose layers differ, from each other or from the usual ones: hybrids, gpt-oss, Gemma 4."""

from dataclasses import dataclass, replace
from typing import Any

from surefoot.plan.named_shape import NamedShape, Sizes, gated, weights


class GptOssShape(NamedShape):
    """Every matrix has a bias, and every head a sink."""

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
        }  # fmt: skip

    def layer(self, layer: int) -> Sizes:
        biased = self.attention() | self.feed_forward() | self.router()
        biases = {f"{name}.bias": size[:-1] for name, size in biased.items()}
        return super().layer(layer) | biases | {"attn_sinks.weight": (self.heads,)}


class Lfm2Shape(NamedShape):
    """Ten layers of a short convolution, six of attention."""

    ATTENDING, TAPS = (2, 5, 8, 10, 12, 14), 3

    def attends(self, layer: int) -> bool:
        return layer in self.ATTENDING

    def metadata(self) -> dict[str, Any]:
        heads = [self.kv_heads if self.attends(layer) else 0 for layer in range(self.layers)]
        return super().metadata() | {"attention.head_count_kv": heads, "shortconv.l_cache": self.TAPS}

    def outside_layers(self) -> Sizes:
        return weights({"token_embd": (self.vocab, self.width), "token_embd_norm": (self.width,)})

    def layer(self, layer: int) -> Sizes:
        mixer = self.attention() | self.head_norms() if self.attends(layer) else self.convolution()
        return weights(self.feed_forward() | self.norms() | mixer)

    def convolution(self) -> Sizes:
        width = self.width
        return {
            "shortconv.in_proj": (3 * width, width), "shortconv.out_proj": (width, width),
            "shortconv.conv": (width, self.TAPS),
        }  # fmt: skip


@dataclass(frozen=True)
class Qwen35Shape(NamedShape):
    """Three layers of the gated delta rule to one of gated attention, without the layer that drafts."""

    INTERVAL, TAPS = 4, 4
    delta_heads: int = 16
    delta_lanes: int = 128

    @property
    def values(self) -> int:
        """Of the delta rule, by token."""
        return self.delta_heads * self.delta_lanes

    def attends(self, layer: int) -> bool:
        return (layer + 1) % self.INTERVAL == 0

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "rope.dimension_count": self.lanes // 4, "rope.dimension_sections": [11, 11, 10, 0],
            "full_attention_interval": self.INTERVAL, "ssm.conv_kernel": self.TAPS,
            "ssm.state_size": self.delta_lanes, "ssm.group_count": self.delta_heads,
            "ssm.time_step_rank": self.delta_heads, "ssm.inner_size": self.values,
        }  # fmt: skip

    def layer(self, layer: int) -> Sizes:
        around = weights(self.feed_forward() | self.norms())
        if not self.attends(layer):
            return around | self.delta_rule()
        gated_queries = {"attn_q": (2 * self.heads * self.lanes, self.width)}
        return around | weights(self.attention() | gated_queries | self.head_norms())

    def delta_rule(self) -> Sizes:
        heads, values, width = self.delta_heads, self.values, self.width
        sizes: Sizes = {
            "attn_qkv": (3 * values, width), "attn_gate": (values, width), "ssm_out": (width, values),
            "ssm_alpha": (heads, width), "ssm_beta": (heads, width), "ssm_conv1d": (3 * values, self.TAPS),
            "ssm_norm": (self.delta_lanes,),
        }  # fmt: skip
        return weights(sizes) | {"ssm_a": (heads,), "ssm_dt.bias": (heads,)}


class Gemma4Shape(NamedShape):
    """A feed-forward beside the experts. Every sixth layer is global: its heads are wider and fewer, and its keys are
    its values."""

    INTERVAL, GLOBAL_HEADS, GLOBAL_LANES = 6, 2, 512

    def slides(self, layer: int) -> bool:
        return (layer + 1) % self.INTERVAL != 0

    def metadata(self) -> dict[str, Any]:
        slides = [self.slides(layer) for layer in range(self.layers)]
        heads = [self.kv_heads if slid else self.GLOBAL_HEADS for slid in slides]
        return super().metadata() | {
            "attention.head_count_kv": heads, "attention.key_length": self.GLOBAL_LANES,
            "attention.value_length": self.GLOBAL_LANES, "attention.key_length_swa": self.lanes,
            "attention.value_length_swa": self.lanes, "rope.dimension_count": self.GLOBAL_LANES,
            "rope.dimension_count_swa": self.lanes, "rope.freq_base_swa": 10000.0,
            "attention.sliding_window_pattern": slides, "attention.shared_kv_layers": 0,
            "embedding_length_per_layer_input": 0, "final_logit_softcapping": 30.0,
        }  # fmt: skip

    def outside_layers(self) -> Sizes:
        return super().outside_layers() | weights({"rope_freqs": (self.GLOBAL_LANES // 2,)})

    def layer(self, layer: int) -> Sizes:
        if not self.slides(layer):
            wide = replace(self, kv_heads=self.GLOBAL_HEADS, head_dim=self.GLOBAL_LANES)
            return {name: size for name, size in wide.layer(0).items() if name != "attn_v.weight"}
        scales = {"ffn_gate_inp.scale": (self.width,), "ffn_down_exps.scale": (self.experts,)}
        return super().layer(layer) | scales | weights({"layer_output_scale": (1,)})

    def feed_forward(self) -> Sizes:
        return gated(self.ffn, self.width) | {
            "ffn_gate_up_exps": (self.experts, 2 * self.expert_ffn, self.width),
            "ffn_down_exps": (self.experts, self.width, self.expert_ffn),
        }


FAMILIES: dict[str, type[NamedShape]] = {
    "gpt-oss": GptOssShape, "lfm2": Lfm2Shape, "qwen35": Qwen35Shape, "gemma4": Gemma4Shape,
}  # fmt: skip
