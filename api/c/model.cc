// SPDX-License-Identifier: Apache-2.0
//
// Models in C.
#include <algorithm>
#include <iterator>

#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/results.h"
#include "cairn/rotary.h"

using cairn::Result;
using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace cairn::capi {

namespace {

// The names that presets give: those in the C++ value die with it, these stay.
const char* PresetName(const std::string& name) {
  static constexpr const char* kNames[] = {"attention", "window", "mla",    "recurrent", "k",
                                           "v",         "latent", "k_rope", "state"};
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  CAIRN_CHECK(found != std::end(kNames));
  return *found;
}

Status GivePreset(const LayerGroup& preset, cairn_layer_group* group, cairn_plane* planes) {
  CAIRN_C_NEED(group);
  CAIRN_C_NEED(planes);
  CAIRN_RETURN_IF_ERROR(CheckStructSize(group, sizeof(*group), "cairn_layer_group"));
  CAIRN_RETURN_IF_ERROR(CheckStructSize(planes, sizeof(*planes), "cairn_plane"));
  const size_t plane_bytes = planes->struct_size;
  for (size_t i = 0; i < preset.planes.size(); ++i) {
    cairn_plane plane = ToC(preset.planes[i]);
    plane.name = PresetName(preset.planes[i].name);
    auto* const at =
        reinterpret_cast<cairn_plane*>(reinterpret_cast<std::byte*>(planes) + i * plane_bytes);
    at->struct_size = plane_bytes;
    Write(plane, at);
  }
  cairn_layer_group as_c = ToC(preset);
  as_c.name = PresetName(preset.name);
  as_c.packing = nullptr;
  as_c.planes = planes;
  as_c.plane_count = preset.planes.size();
  Write(as_c, group);
  return Status::Ok();
}

// Frequencies made from others, in place.
template <typename Make>
cairn_code Frequencies(float* inv_freq, size_t count, cairn_error** error, const Make& make) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(inv_freq);
    CAIRN_RETURN_IF_ERROR(CheckCount(inv_freq, count, kMaxInvFreq, "inv_freq"));
    const std::vector<float> made = make(std::vector<float>(inv_freq, inv_freq + count));
    std::copy(made.begin(), made.end(), inv_freq);
    return Status::Ok();
  });
}

// And those of a width.
template <typename Make>
cairn_code FrequenciesOf(uint32_t width, float* inv_freq, cairn_error** error, const Make& make) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(inv_freq);
    CAIRN_RETURN_IF_ERROR(CheckCount(inv_freq, width / 2, kMaxInvFreq, "width / 2"));
    const std::vector<float> made = make();
    std::copy(made.begin(), made.end(), inv_freq);
    return Status::Ok();
  });
}

template <typename Enum>
const char* NameOf(uint32_t number, Enum last, const char* (*name)(Enum)) {
  return number > static_cast<uint32_t>(last) ? nullptr : name(static_cast<Enum>(number));
}

}  // namespace

}  // namespace cairn::capi

extern "C" {

uint32_t cairn_dtype_bytes(cairn_dtype dtype) {
  return dtype > CAIRN_DTYPE_U8 ? 0 : cairn::DtypeBytes(static_cast<cairn::Dtype>(dtype));
}
const char* cairn_dtype_name(cairn_dtype dtype) {
  return NameOf(dtype, cairn::Dtype::kU8, cairn::DtypeName);
}
const char* cairn_sealed_as_name(cairn_sealed_as sealed_as) {
  return NameOf(sealed_as, cairn::SealedAs::kInt8, cairn::SealedAsName);
}
const char* cairn_rotary_state_name(cairn_rotary_state state) {
  return NameOf(state, cairn::RotaryState::kBefore, cairn::RotaryStateName);
}
const char* cairn_rotary_pairing_name(cairn_rotary_pairing pairing) {
  return NameOf(pairing, cairn::RotaryPairing::kAdjacent, cairn::RotaryPairingName);
}

cairn_code cairn_layer_group_token_bytes(const cairn_layer_group* group, uint64_t* bytes,
                                         cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(group);
    CAIRN_C_NEED(bytes);
    CAIRN_ASSIGN_OR_RETURN(const cairn_layer_group read, Read(group));
    CAIRN_ASSIGN_OR_RETURN(const cairn::LayerGroup converted, ToLayerGroup(read));
    *bytes = converted.token_bytes();
    return Status::Ok();
  });
}

cairn_code cairn_layer_group_full_attention(cairn_layer_group* group, cairn_plane* planes,
                                            uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                                            cairn_dtype dtype, cairn_error** error) {
  return Call(error, [&]() -> Status {
    cairn::Dtype of{};
    CAIRN_RETURN_IF_ERROR(ToDtype(dtype, "dtype", &of));
    return GivePreset(cairn::LayerGroup::FullAttention(layers, kv_heads, head_dim, of), group,
                      planes);
  });
}

cairn_code cairn_layer_group_sliding_window(cairn_layer_group* group, cairn_plane* planes,
                                            uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                                            cairn_dtype dtype, uint32_t window, uint32_t sinks,
                                            cairn_error** error) {
  return Call(error, [&]() -> Status {
    cairn::Dtype of{};
    CAIRN_RETURN_IF_ERROR(ToDtype(dtype, "dtype", &of));
    return GivePreset(
        cairn::LayerGroup::SlidingWindow(layers, kv_heads, head_dim, of, window, sinks), group,
        planes);
  });
}

cairn_code cairn_layer_group_mla(cairn_layer_group* group, cairn_plane* planes, uint32_t layers,
                                 uint32_t latent_bytes, uint32_t rotary_bytes, cairn_dtype dtype,
                                 cairn_error** error) {
  return Call(error, [&]() -> Status {
    cairn::Dtype of{};
    CAIRN_RETURN_IF_ERROR(ToDtype(dtype, "dtype", &of));
    return GivePreset(cairn::LayerGroup::Mla(layers, latent_bytes, rotary_bytes, of), group,
                      planes);
  });
}

cairn_code cairn_layer_group_recurrent(cairn_layer_group* group, cairn_plane* planes,
                                       uint32_t layers, uint32_t state_bytes, cairn_error** error) {
  return Call(error, [&]() -> Status {
    return GivePreset(cairn::LayerGroup::Recurrent(layers, state_bytes), group, planes);
  });
}

cairn_code cairn_model_spec_token_bytes(const cairn_model_spec* spec, uint64_t* bytes,
                                        cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(spec);
    CAIRN_C_NEED(bytes);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec converted, ToModel(spec));
    *bytes = converted.token_bytes();
    return Status::Ok();
  });
}

cairn_code cairn_model_spec_validate(const cairn_model_spec* spec, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(spec);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec converted, ToModel(spec));
    return converted.Validate();
  });
}

cairn_code cairn_model_spec_first_difference(const cairn_model_spec* spec,
                                             const cairn_model_spec* other, char** text,
                                             cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(text);
    CAIRN_C_NEED(spec);
    CAIRN_C_NEED(other);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec a, ToModel(spec));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec b, ToModel(other));
    const std::string difference = a.FirstDifference(b);
    if (!difference.empty()) *text = NewText(difference);
    return Status::Ok();
  });
}

cairn_code cairn_rotary_frequencies(uint32_t width, double theta, float* inv_freq,
                                    cairn_error** error) {
  return FrequenciesOf(width, inv_freq, error,
                       [&] { return cairn::RotaryFrequencies(width, theta); });
}

cairn_code cairn_linear_frequencies(float* inv_freq, size_t count, double factor,
                                    cairn_error** error) {
  return Frequencies(inv_freq, count, error, [&](std::vector<float> from) {
    return cairn::LinearFrequencies(std::move(from), factor);
  });
}

cairn_code cairn_llama3_frequencies(float* inv_freq, size_t count, double factor,
                                    double low_freq_factor, double high_freq_factor,
                                    uint32_t original_positions, cairn_error** error) {
  return Frequencies(inv_freq, count, error, [&](std::vector<float> from) {
    return cairn::Llama3Frequencies(std::move(from), {.factor = factor,
                                                      .low_freq_factor = low_freq_factor,
                                                      .high_freq_factor = high_freq_factor,
                                                      .original_positions = original_positions});
  });
}

cairn_code cairn_yarn_frequencies(uint32_t width, double theta, double factor,
                                  uint32_t original_positions, double beta_fast, double beta_slow,
                                  float* inv_freq, cairn_error** error) {
  return FrequenciesOf(width, inv_freq, error, [&] {
    return cairn::YarnFrequencies(width, theta,
                                  {.factor = factor,
                                   .original_positions = original_positions,
                                   .beta_fast = beta_fast,
                                   .beta_slow = beta_slow});
  });
}

float cairn_yarn_mscale(double factor, double coefficient) {
  return cairn::YarnMscale(factor, coefficient);
}

cairn_code cairn_long_rope_frequencies(uint32_t width, double theta, const double* short_factors,
                                       const double* long_factors, uint32_t original_positions,
                                       uint64_t context_positions, float* inv_freq,
                                       cairn_error** error) {
  const bool is_long = context_positions > original_positions;
  const double* const factors = is_long ? long_factors : short_factors;
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(inv_freq);
    CAIRN_RETURN_IF_ERROR(CheckCount(inv_freq, width / 2, cairn::kMaxInvFreq, "width / 2"));
    CAIRN_RETURN_IF_ERROR(CheckCount(factors, width / 2, cairn::kMaxInvFreq,
                                     is_long ? "long_factors" : "short_factors"));
    cairn::LongRopeScaling scaling{.original_positions = original_positions,
                                   .context_positions = context_positions};
    (is_long ? scaling.long_factors : scaling.short_factors).assign(factors, factors + width / 2);
    const std::vector<float> made = cairn::LongRopeFrequencies(width, theta, scaling);
    std::copy(made.begin(), made.end(), inv_freq);
    return Status::Ok();
  });
}

float cairn_long_rope_mscale(double factor, uint32_t original_positions) {
  return cairn::LongRopeMscale(factor, original_positions);
}

cairn_code cairn_rotate_keys(const cairn_layer_group* group, const cairn_key_rotation* rotation,
                             cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(group);
    CAIRN_C_NEED(rotation);
    CAIRN_ASSIGN_OR_RETURN(const cairn_layer_group read, Read(group));
    CAIRN_ASSIGN_OR_RETURN(const cairn::LayerGroup converted, ToLayerGroup(read));
    CAIRN_ASSIGN_OR_RETURN(const cairn::KeyRotation wanted, ToKeyRotation(rotation));
    return cairn::RotateKeys(converted, wanted);
  });
}

}  // extern "C"
