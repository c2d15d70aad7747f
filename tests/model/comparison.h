// SPDX-License-Identifier: Apache-2.0
//
// Compares everything that a store shows with the reference model. A difference is thrown as a
// Mismatch. Everything that was read goes into a digest, unless options and the background decide
// it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "cairn/store.h"
#include "tests/model/kv_rows.h"
#include "tests/model/reference_model.h"
#include "tests/support/status.h"

namespace cairn::testing {

// Branches that grow: "" keeps everything, "e" loses KV all the time, "q" is full now and then, "p"
// keeps KV as its policy says. In "q" are branches without KV only.
inline constexpr const char* kNamespaces[] = {"", "e", "q", "p"};

struct Mismatch {
  std::string what;
};
[[noreturn]] inline void Fail(const std::string& what) { throw Mismatch{what}; }

// Everything that differs ends the run.
template <typename Want, typename Got>
void Same(const Want& want, const Got& got, const char* what) {
  if (want == got) return;
  if constexpr (std::is_integral_v<Want> && std::is_integral_v<Got>) {
    Fail(std::string(what) + ": " + std::to_string(got) + ", not " + std::to_string(want));
  } else if constexpr (std::is_convertible_v<Want, std::string>) {
    Fail(std::string(what) + ": \"" + std::string(got) + "\", not \"" + std::string(want) + "\"");
  } else {
    Fail(std::string(what) + " differ");
  }
}
inline void Holds(bool is_so, const char* what) {
  if (!is_so) Fail(what);
}
template <typename T>
void MustBe(StatusCode code, const T& result, const char* what) {
  const Status status = StatusOf(result);
  if (status.code() == code) return;
  Fail(std::string(what) + ": " + status.ToString() + ", not " + std::string(StatusCodeName(code)));
}
template <typename T>
void MustBeOk(const T& result, const char* what) {
  MustBe(StatusCode::kOk, result, what);
}

// The model's branches, by their numbers in it.
using BranchIds = std::map<uint64_t, BranchId>;

class Comparison {
 public:
  Comparison(const std::vector<ModelSpec>& specs, const ReferenceModel& model)
      : specs_(specs), model_(model) {}

  void Info(const Store& store, uint64_t id, BranchId branch);
  // Ids, KV, states and spans.
  void Content(const Store& store, uint64_t id, BranchId branch, uint64_t begin, uint64_t end);
  // Branches and namespaces.
  void Listings(const Store& store, const BranchIds& branches_of, size_t page_size);
  void All(const Store& store, const BranchIds& branches_of);
  // After a Compact. `other_nodes`: it may have joined nodes, or trimmed some.
  void Liveness(const Store& store, bool other_nodes);

  // KV as the model has it.
  KvRows RowsOf(const ModelBranch& branch, const std::vector<RowRange>& ranges) const;

  void Digest(uint64_t number) {
    digest_ = (digest_ ^ number) * 0x9E3779B97F4A7C15;
    digest_ ^= digest_ >> 29;
  }
  void Digest(const std::string& text) {
    for (const char c : text) Digest(static_cast<uint64_t>(c));
  }
  uint64_t digest() const { return digest_; }
  uint64_t approximate_bytes() const { return approximate_bytes_; }  // That were read.

 private:
  void State(const std::map<uint64_t, uint64_t>& states, uint64_t position,
             const Result<Branch::StateAt>& got, bool is_sampler);
  void Kv(const Branch& branch, const ModelBranch& want, uint64_t begin, uint64_t end);
  void Holes(const Branch& branch, const ModelBranch& want, uint64_t common);

  const std::vector<ModelSpec>& specs_;
  const ReferenceModel& model_;
  uint64_t digest_ = 0;
  uint64_t approximate_bytes_ = 0;
};

}  // namespace cairn::testing
