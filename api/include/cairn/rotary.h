// SPDX-License-Identifier: Apache-2.0
//
// Rotary position encoding, as far as stored keys depend on it. A key of position p has its
// elements turned in pairs: pair i by the angle p * inv_freq[i]. Whether that is done already,
// which elements make a pair and what the frequencies are must be known before a key can be used at
// another position than its own.
//
//   plane.rotary   = {.state = RotaryState::kApplied, .pairing = RotaryPairing::kHalves};
//   group.inv_freq = Llama3Frequencies(RotaryFrequencies(128, 500'000.0), {.factor = 8.0});
//
// The frequencies are those of the engine that made the keys. The functions below compute in double
// and round once; an engine that computes in fp32 may have another last bit, and then its own
// numbers are the ones to give.
//
// Pure functions: thread-safe, no store, no I/O. Those that make frequencies check nothing of their
// arguments, and a number that is not finite is refused when the model is registered; they may
// throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

struct LayerGroup;

// Whether what is stored is rotated. On disk; never change.
enum class RotaryState : uint8_t {
  kUnset = 0,    // Not said, but that it is not applied: it is kNone or kBefore.
  kNone = 1,     // The plane is never rotated: values, layers without positions.
  kApplied = 2,  // Stored rows are rotated.
  kBefore = 3,   // The engine rotates the plane; rows are stored from before that.
};
// "unset", "none", "applied", "before"; "unknown" for another value. The text is static.
const char* RotaryStateName(RotaryState state);

// Which elements turn together; w is the width of the window. On disk; never change.
enum class RotaryPairing : uint8_t {
  kUnset = 0,     // Not said.
  kHalves = 1,    // i and i + w/2: Hugging Face, vLLM, SGLang for Llama, Qwen, Mistral, Gemma.
  kAdjacent = 2,  // 2i and 2i + 1: llama.cpp and llama2.c for Llama, DeepSeek's MLA, GPT-J.
};
// "unset", "halves", "adjacent"; "unknown" for another value. The text is static.
const char* RotaryPairingName(RotaryPairing pairing);

// How a plane's rows are rotated. Every field has a value that says nothing (kUnset, 0, empty): it
// agrees with whatever another description of the same model says there.
struct RotarySpec {
  RotaryState state = RotaryState::kUnset;
  RotaryPairing pairing = RotaryPairing::kUnset;
  // The window: elements [first, first + width) of a row are rotated, the others are not. `width`
  // is even; 0: not said, twice as many as LayerGroup::inv_freq has numbers. A width that is said
  // must be that, too, if there are any. `first` counts as said with the width.
  uint32_t first = 0, width = 0;
  // How many pairs turn by which of several positions of a token (M-RoPE: time, height, width).
  // Their sum is width / 2, so the width is said. Empty: not said, or one position.
  std::vector<uint32_t> sections{};
  // The sections' pairs take turns (0, 1, 2, 0, 1, 2, ...; what is left at the end belongs to the
  // first) instead of lying one behind the other. Counts as said with the sections.
  bool interleaved = false;
  bool operator==(const RotarySpec&) const = default;
};

// theta^(-2i / width) for i in [0, width / 2): no scaling. `width` counts elements, as everywhere
// here.
std::vector<float> RotaryFrequencies(uint32_t width, double theta);

// All divided by the factor: linear position interpolation.
std::vector<float> LinearFrequencies(std::vector<float> inv_freq, double factor);

// Llama 3.1 and later: waves longer than original_positions / low_freq_factor are divided by the
// factor, those shorter than original_positions / high_freq_factor stay, between them it blends.
struct Llama3Scaling {
  double factor = 8.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  uint32_t original_positions = 8192;
};
std::vector<float> Llama3Frequencies(std::vector<float> inv_freq, const Llama3Scaling& scaling);

// YaRN: pairs that turn more than beta_fast times in original_positions stay, those that turn less
// than beta_slow times are divided by the factor, between them it blends by the number of the pair.
struct YarnScaling {
  double factor = 1.0;
  uint32_t original_positions = 4096;
  double beta_fast = 32.0, beta_slow = 1.0;
};
std::vector<float> YarnFrequencies(uint32_t width, double theta, const YarnScaling& scaling);
// The factor of YaRN on cosine and sine (LayerGroup::mscale): 0.1 * coefficient * ln(factor) + 1,
// and 1 for factors up to 1. DeepSeek's is YarnMscale(f, mscale) / YarnMscale(f, mscale_all_dim).
float YarnMscale(double factor, double coefficient = 1.0);

// LongRoPE (Phi-3 and later): the frequency of pair i is divided by the i-th of `short_factors`, or
// of `long_factors` where the context is longer than original_positions. Keys of the two do not
// turn into each other: a model that was registered with one is another model with the other.
struct LongRopeScaling {
  std::vector<double> short_factors{}, long_factors{};  // width / 2 of each.
  uint32_t original_positions = 4096;
  uint64_t context_positions = 0;  // The engine's context length, by which it chooses.
};
// As many numbers as the factors that are chosen, width / 2 at most.
std::vector<float> LongRopeFrequencies(uint32_t width, double theta,
                                       const LongRopeScaling& scaling);
// The factor of LongRoPE on cosine and sine (LayerGroup::mscale), for contexts that are `factor`
// times original_positions at most: sqrt(1 + ln(factor) / ln(original_positions)), and 1 for
// factors up to 1. It does not depend on which factors are chosen.
float LongRopeMscale(double factor, uint32_t original_positions);

// Bytes from a layer, token, head or element to the next. 0: dense, as [layer][token][head][row].
struct KeyStrides {
  uint64_t layer = 0, token = 0, head = 0, element = 0;
  bool operator==(const KeyStrides&) const = default;
};

// Rows of a plane, and where they are wanted.
struct KeyRotation {
  size_t plane = 0;     // Of LayerGroup::planes.
  uint32_t layers = 1;  // Layers that `rows` has; they share the cosines and sines of a token.
  // Positions of the tokens, any, in any order: one a token; with sections one per section, one
  // token behind the other. `from` of a plane of RotaryState::kBefore is empty.
  std::span<const uint64_t> from{}, to{};
  // Memory of the host, which need not be aligned: Plane::heads rows of row_bytes for each token.
  // `into` gets whole rows. It is the memory of `rows` with the same strides, or shares none of it.
  std::span<const std::byte> rows{};
  std::span<std::byte> into{};
  KeyStrides row_strides{}, into_strides{};
};

// Turns rows to other positions. RotaryState::kApplied: what was rotated at `from` becomes what is
// rotated at `to`. RotaryState::kBefore: what is not rotated yet becomes what the engine computes
// at `to`, mscale included. Each row is turned by the engine's own angles: fl32(fl32(position) *
// inv_freq). Elements outside the window are copied; so is a pair whose angle stays, bit for bit.
//
// Let r be a pair turned without any rounding. What is written differs from it by at most
// (u + 2^-22) * |r| in the Euclidean norm, u = 2^-24 (f32), 2^-11 (f16), 2^-8 (bf16), however far;
// mscale and subnormal numbers add their own roundings. Errors of repeated turns add up: always
// turn the row that was stored first.
//
// Computes on the caller's thread, without locks; takes 2 KiB of memory a pair for cosines and
// sines. kInvalidArgument, by the field, and nothing is written: the plane does not exist or is not
// rotated; pairing or inv_freq is unset, or the window does not fit; elements are none of f32, f16
// and bf16; numbers of positions that do not match; strides by which rows overlap; rows that do not
// fit `rows` or `into`; `into` that shares part of `rows`. kOutOfMemory: nothing is written either.
Status RotateKeys(const LayerGroup& group, const KeyRotation& rotation);

}  // namespace cairn
