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
// Pure functions: thread-safe, no store, no I/O. They check nothing of their arguments, and a
// number that is not finite is refused when the model is registered; they may throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <vector>

namespace [[gnu::visibility("default")]] cairn {

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

}  // namespace cairn
