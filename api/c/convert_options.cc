// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "api/c/convert.h"
#include "api/c/handles.h"

namespace cairn::capi {

namespace {

// Cursors are made of names and a few numbers.
constexpr size_t kMaxCursorBytes = 16 * kMaxNameBytes;

// Passes the store's events on; null if there is no callback.
std::shared_ptr<EventListener> ToListener(const cairn_options& given) {
  if (given.on_poisoned == nullptr && given.on_event == nullptr) return nullptr;
  auto listener = std::make_shared<EventListener>();
  if (given.on_poisoned != nullptr) {
    listener->on_poisoned = [call = given.on_poisoned,
                             context = given.listener_context](const Status& cause) {
      const cairn_error error{cause};
      call(context, &error);
    };
  }
  if (given.on_event != nullptr) {
    listener->on_event = [call = given.on_event, context = given.listener_context](
                             const std::string& line) { call(context, line.c_str()); };
  }
  return listener;
}

}  // namespace

Status ToDurability(cairn_durability given, Durability* into) {
  return ToEnum(given, Durability::kPower, "durability", into);
}

Result<Options> ToOptions(const cairn_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_options read, Read(given));
  Options options;
  options.create_if_missing = read.create_if_missing;
  options.error_if_exists = read.error_if_exists;
  options.read_only = read.read_only;
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.recovery, Recovery::kSetAside, "cairn_options::recovery", &options.recovery));
  options.file_mode = read.file_mode;
  options.max_bytes = read.max_bytes;
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.evict, Evict::kBranches, "cairn_options::evict", &options.evict));
  CAIRN_RETURN_IF_ERROR(ToEnum(read.index, kLastIndex, "cairn_options::index", &options.index));
  options.segment_bytes = read.segment_bytes;
  options.log_bytes_max = read.log_bytes_max;
  options.snapshot_interval_tokens = read.snapshot_interval_tokens;
  options.max_delta_chain = read.max_delta_chain;
  options.replay_records_max = read.replay_records_max;
  options.background_bytes_per_second = read.background_bytes_per_second;
  options.spare_segments_min = read.spare_segments_min;
  options.spare_segments_max = read.spare_segments_max;
  options.max_memory_bytes = read.max_memory_bytes;
  options.hot_tail_bytes = read.hot_tail_bytes;
  options.submit_copy_max_bytes = read.submit_copy_max_bytes;
  options.tree_memory_bytes = read.tree_memory_bytes;
  options.reuse_memory_bytes = read.reuse_memory_bytes;
  if (read.allocate != nullptr || read.deallocate != nullptr) {
    options.allocator = {read.allocate, read.deallocate, read.allocator_context};
  }
  options.max_lease_ns = read.max_lease_ns;
  options.max_leased_bytes = read.max_leased_bytes;
  options.delta_batch_wait_ns = read.delta_batch_wait_ns;
  options.delta_batch_tokens = read.delta_batch_tokens;
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.on_fatal, FatalAction::kAbort, "cairn_options::on_fatal", &options.on_fatal));
  options.listener = ToListener(read);
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.backend, Backend::kThreads, "cairn_options::backend", &options.backend));
  options.executor_threads = read.executor_threads;
  CAIRN_RETURN_IF_ERROR(CheckCount(read.gpus, read.gpu_count, 1024, "cairn_options::gpus"));
  for (size_t i = 0; i < read.gpu_count; ++i) {
    if (read.gpus[i] == nullptr) return Invalid("cairn_options::gpus has a NULL");
    options.gpus.push_back(*read.gpus[i]->value);
  }
  return options;
}

Result<NamespacePolicy> ToPolicy(const cairn_namespace_policy* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_namespace_policy read, Read(given));
  NamespacePolicy policy;
  policy.max_bytes = read.max_bytes;
  policy.ttl_ns = read.ttl_ns;
  CAIRN_RETURN_IF_ERROR(ToEnum(read.persist, Persist::kTokensOnly,
                               "cairn_namespace_policy::persist", &policy.persist));
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.index, kLastIndex, "cairn_namespace_policy::index", &policy.index));
  if (read.has_evict) {
    CAIRN_RETURN_IF_ERROR(ToEnum(read.evict, Evict::kBranches, "cairn_namespace_policy::evict",
                                 &policy.evict.emplace()));
  }
  return policy;
}

Result<std::string> ToCursor(const cairn_bytes* given) {
  if (given == nullptr) return std::string();
  CAIRN_RETURN_IF_ERROR(CheckCount(given->data, given->size, kMaxCursorBytes, "cursor"));
  return std::string(static_cast<const char*>(given->data), given->size);
}

Result<Keep> ToKeep(const cairn_keep* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_keep read, Read(given));
  return Keep{.pinned = read.pinned, .priority = read.priority, .ttl_ns = read.ttl_ns};
}

Result<BranchOptions> ToBranchOptions(const cairn_branch_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_branch_options read, Read(given));
  BranchOptions options;
  options.name = String(read.name);
  options.ns = String(read.ns);
  options.keep = {.pinned = read.pinned, .priority = read.priority, .ttl_ns = read.ttl_ns};
  CAIRN_RETURN_IF_ERROR(ToDurability(read.durability, &options.durability));
  return options;
}

Result<AppendOptions> ToAppendOptions(const cairn_append_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_append_options read, Read(given));
  AppendOptions options;
  CAIRN_RETURN_IF_ERROR(ToDurability(read.durability, &options.durability));
  CAIRN_RETURN_IF_ERROR(ToEnum(read.overload, Overload::kShedKv, "cairn_append_options::overload",
                               &options.overload));
  if (read.has_expected_length) options.expected_length = read.expected_length;
  options.ends_turn = read.ends_turn;
  options.exact = !read.approximate;
  options.timeout_ns = read.timeout_ns;
  options.gpu_ready = read.gpu_ready;
  if (read.queue != nullptr) options.queue = &read.queue->value;
  options.user_data = read.user_data;
  return options;
}

Result<GpuOptions> ToGpuOptions(const cairn_gpu_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_gpu_options read, Read(given));
  GpuOptions options;
  options.ordinal = read.ordinal;
  options.processors_max = read.processors_max;
  options.pinned_bytes = read.pinned_bytes;
  options.pinned_tokens = read.pinned_tokens;
  CAIRN_RETURN_IF_ERROR(CheckCount(read.pinned_tokens_of, read.pinned_tokens_of_count, 65'536,
                                   "cairn_gpu_options::pinned_tokens_of"));
  for (size_t i = 0; i < read.pinned_tokens_of_count; ++i) {
    options.pinned_tokens_of[String(read.pinned_tokens_of[i].model)] =
        read.pinned_tokens_of[i].tokens;
  }
  return options;
}

cairn_namespace_policy ToC(const NamespacePolicy& policy) {
  auto c = Sized<cairn_namespace_policy>::Default();
  c.max_bytes = policy.max_bytes;
  c.ttl_ns = policy.ttl_ns;
  c.persist = static_cast<uint32_t>(policy.persist);
  c.index = static_cast<uint32_t>(policy.index);
  c.has_evict = policy.evict.has_value();
  c.evict = static_cast<uint32_t>(policy.evict.value_or(Evict::kNever));
  return c;
}

cairn_keep ToC(const Keep& keep) {
  auto c = Sized<cairn_keep>::Default();
  c.pinned = keep.pinned;
  c.priority = keep.priority;
  c.ttl_ns = keep.ttl_ns;
  return c;
}

NamespaceInfoAsC::NamespaceInfoAsC(const NamespaceInfo& info)
    : cairn_namespace_info{}, policy_(ToC(info.policy)) {
  struct_size = sizeof(cairn_namespace_info);
  name = info.name.c_str();
  policy = &policy_;
  branches = info.branches;
  bytes = info.bytes;
}

BranchInfoAsC::BranchInfoAsC(const BranchInfo& info) : cairn_branch_info{}, keep_(ToC(info.keep)) {
  struct_size = sizeof(cairn_branch_info);
  id = static_cast<uint64_t>(info.id);
  name = info.name.c_str();
  ns = info.ns.c_str();
  model = static_cast<uint64_t>(info.model);
  node = static_cast<uint64_t>(info.node);
  length = info.length;
  kv_lengths = info.kv_lengths.data();
  kv_length_count = info.kv_lengths.size();
  created_at_ns = info.created_at_ns;
  updated_at_ns = info.updated_at_ns;
  used_at_ns = info.used_at_ns;
  keep = &keep_;
}

}  // namespace cairn::capi
