// SPDX-License-Identifier: Apache-2.0
//
// C structs to C++ values and back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/c/convert_view.h"
#include "api/c/sized.h"
#include "cairn/branch.h"
#include "cairn/find.h"
#include "cairn/objects.h"
#include "cairn/options.h"
#include "cairn/shadow.h"
#include "cairn/sparse.h"

namespace cairn::capi {

inline std::string_view Text(const char* text) { return text == nullptr ? "" : text; }
inline std::string String(const char* text) { return std::string(Text(text)); }
Result<std::string_view> ToKey(const cairn_bytes& given);
inline cairn_bytes Bytes(std::string_view text) {
  return {text.empty() ? nullptr : text.data(), text.size()};
}
inline std::span<const std::byte> Span(const cairn_bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data), bytes.size};
}

// The number as a value of the enumeration, whose last one is `last`.
template <typename Enum>
Status ToEnum(uint32_t number, Enum last, const char* field, Enum* into) {
  if (number > static_cast<uint32_t>(last)) {
    return Invalid(std::string(field) + ": " + std::to_string(number) + " is none that exists");
  }
  *into = static_cast<Enum>(number);
  return Status::Ok();
}
Status ToDurability(cairn_durability given, Durability* into);

// --- Options. Null: all defaults.
Result<Options> ToOptions(const cairn_options* given);
Result<NamespacePolicy> ToPolicy(const cairn_namespace_policy* given);
Result<Keep> ToKeep(const cairn_keep* given);
Result<BranchOptions> ToBranchOptions(const cairn_branch_options* given);
Result<AppendOptions> ToAppendOptions(const cairn_append_options* given);
Result<GpuOptions> ToGpuOptions(const cairn_gpu_options* given);

// --- Memory that an asynchronous call borrows, alive until the call does not need it any more.
struct Borrowed {
  Borrowed() = default;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    if (released_ != nullptr) released_(context_);
  }
  // Call it once the call has begun, on a thread that keeps this alive meanwhile: if the call fails
  // `released` is not called.
  void CallWhenReleased(void (*released)(void* context), void* context) {
    context_ = context;
    released_ = released;
  }

 private:
  void (*released_)(void* context) = nullptr;
  void* context_ = nullptr;
};

// A delta with everything that it points to. Must not move.
struct DeltaArrays : Borrowed {
  Status Fill(const cairn_delta* given);
  Delta delta;

 private:
  KvArrays kv_;
  SamplerState sampler_;
  AppMetadata metadata_;
  std::vector<ContentSpan> spans_;
};

// A request likewise.
struct RestoreArrays : Borrowed {
  Status Fill(const cairn_restore_request* given);
  RestoreRequest request;

 private:
  KvArrays kv_;
  std::vector<uintptr_t> events_;
  GpuSync gpu_;
};

Result<std::string> ToCursor(const cairn_bytes* given);  // Null: empty.
Status ToSpans(const cairn_content_span* given, size_t count, size_t max,
               std::vector<ContentSpan>* into);

// --- Back: C structs that point into the C++ value, which outlives them. They must not move.
cairn_namespace_policy ToC(const NamespacePolicy& policy);
cairn_keep ToC(const Keep& keep);
cairn_content_span ToC(const ContentSpan& span);
cairn_sampler_state ToC(const SamplerState& state);
cairn_app_metadata ToC(const AppMetadata& metadata);
cairn_shadow_spec ToC(const ShadowSpec& spec);
// kInvalidArgument: `stats` is null, or no such struct.
Status GiveStats(const SparseStats& counted, cairn_sparse_stats* stats);

struct BranchInfoAsC : cairn_branch_info {
  explicit BranchInfoAsC(const BranchInfo& info);
  BranchInfoAsC(const BranchInfoAsC&) = delete;
  BranchInfoAsC& operator=(const BranchInfoAsC&) = delete;

 private:
  cairn_keep keep_;
};

struct NamespaceInfoAsC : cairn_namespace_info {
  explicit NamespaceInfoAsC(const NamespaceInfo& info);
  NamespaceInfoAsC(const NamespaceInfoAsC&) = delete;
  NamespaceInfoAsC& operator=(const NamespaceInfoAsC&) = delete;

 private:
  cairn_namespace_policy policy_;
};

}  // namespace cairn::capi
