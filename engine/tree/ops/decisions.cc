// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/ops/decisions.h"

#include <algorithm>
#include <utility>

#include "base/codec/model_check.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/text.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

namespace {

Status Bad(std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); }

bool HasState(std::span<const LaneRange> lanes) {
  return std::any_of(lanes.begin(), lanes.end(), [](const LaneRange& range) {
    return range.lane == kSamplerLane || range.lane == kMetadataLane;
  });
}

// Whether anything but this branch needs the node at the position or beyond. True if memory does
// not know.
bool IsSharedAt(const Node& node, uint64_t position, uint64_t branch) {
  if (!CAIRN_KEPT(kLiveStateShared)) return false;
  if (!node.knows_all_refs() && node.refs_from.position >= position) return true;
  return std::any_of(
      node.refs.lower_bound({.position = position}), node.refs.end(),
      [branch](const Ref& ref) { return ref.kind != Ref::kHead || ref.id != branch; });
}

std::string Describe(const Head& head) {
  return head.name.empty() ? "branch #" + std::to_string(head.id) : "branch " + Quoted(head.name);
}

Status CheckName(const Tree& tree, const std::string& name, const std::string& ns) {
  CAIRN_RETURN_IF_ERROR(CheckNameBytes(name, NameBytesMax(ns), "name"));
  CAIRN_RETURN_IF_ERROR(CheckNameBytes(ns, NamespaceBytesMax(ns), "namespace"));
  if (tree.FindHead(ns, name) != nullptr) {
    return Status(
        StatusCode::kAlreadyExists,
        "branch " + Quoted(name) + " exists" + (ns.empty() ? "" : " in namespace " + Quoted(ns)));
  }
  return Status::Ok();
}

Status CheckBoundary(const Tree& tree, const Head& head, uint64_t position, const char* what) {
  if (position > head.lengths[kTokenLane]) {
    return Bad(std::string(what) + " at position " + std::to_string(position) + " of " +
               Describe(head) + ", which has " + std::to_string(head.lengths[kTokenLane]) +
               " tokens");
  }
  for (const ContentSpan& span : CollectSpans(tree, head, position, position + 1)) {
    if (span.atomic && span.begin < position) {
      return Bad(std::string(what) + " at position " + std::to_string(position) +
                 " inside the atomic content span [" + std::to_string(span.begin) + ", " +
                 std::to_string(span.end) + ")");
    }
  }
  return Status::Ok();
}

// A branch without a ttl gets that of its namespace.
void SetKeep(const Tree& tree, Keep keep, Op* op) {
  const NamespaceUsage* const use = tree.FindNamespace(op->ns);
  if (keep.ttl_ns == 0 && use != nullptr) keep.ttl_ns = use->policy.ttl_ns;
  if (keep != Keep()) op->policy = OpPolicy::Of(keep);
}

}  // namespace

Status CheckNotReserved(std::string_view ns) {
  if (!IsReserved(ns)) return Status::Ok();
  return Bad("namespace " + Quoted(ns) + " holds objects; branches cannot be asked for there");
}

Status CheckNameBytes(std::string_view name, uint64_t bytes_max, const char* what) {
  if (name.size() > bytes_max) {
    return Bad(std::string(what) + " has " + std::to_string(name.size()) + " bytes, at most " +
               std::to_string(bytes_max));
  }
  // Cursors of listings end a name with NUL.
  if (name.find('\0') != std::string::npos) return Bad(std::string(what) + " holds a NUL");
  return Status::Ok();
}

Result<Op> ResolveModel(const Tree& tree, const ModelSpec& spec) {
  Op op;
  op.kind = OpKind::kModel;
  op.other = tree.next_id();
  op.spec = EncodeModel(spec);
  return op;
}

Result<Op> ResolveKnownModel(const Tree& tree, uint64_t model, const ModelSpec& spec) {
  CAIRN_RETURN_IF_ERROR(CheckStoredModel(spec));
  ModelSpec known = *tree.FindModel(model);
  known.TakeUnset(spec);
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(CheckAngles(spec.groups[i], "groups[" + std::to_string(i) + "]"));
  }
  if (const Status fits = CheckStoredModel(known); !fits.ok()) {
    return Status(StatusCode::kModelMismatch,
                  "with what the registered model says: " + std::string(fits.message()));
  }
  Op op;
  op.kind = OpKind::kModel;
  op.flags = kOpKnown;
  op.other = model;
  op.spec = EncodeModel(known);
  return op;
}

Result<Op> ResolveCreate(const Tree& tree, uint64_t model, const std::string& name,
                         const std::string& ns, Keep keep) {
  if (tree.FindModel(model) == nullptr) {
    return Status(StatusCode::kNotFound, "model " + std::to_string(model) + " is not registered");
  }
  CAIRN_RETURN_IF_ERROR(CheckName(tree, name, ns));
  Op op;
  op.kind = OpKind::kCreate;
  op.branch = tree.next_id();
  op.other = model;
  op.name = name;
  op.ns = ns;
  SetKeep(tree, keep, &op);
  return op;
}

Result<Op> ResolveFork(const Tree& tree, uint64_t branch, uint64_t position,
                       const std::string& name, const std::string& ns, Keep keep) {
  const Head* head = tree.FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  CAIRN_RETURN_IF_ERROR(CheckName(tree, name, ns));
  CAIRN_RETURN_IF_ERROR(CheckBoundary(tree, *head, position, "fork"));
  Op op;
  op.kind = OpKind::kFork;
  op.branch = tree.next_id();
  op.other = branch;
  op.position = position;
  std::vector<uint64_t> lengths = head->lengths;
  const Node* node = NodeAt(tree, tree.OnPath(head->node), position, &lengths);
  op.node = node == nullptr ? 0 : node->id;
  op.name = name;
  op.ns = ns;
  SetKeep(tree, keep, &op);
  return op;
}

Result<Op> ResolveForkOfNode(const Tree& tree, uint64_t source, uint64_t position,
                             const std::string& name, const std::string& ns, Keep keep) {
  const Node* const from = tree.FindNode(source);
  if (from == nullptr) {
    return Status(StatusCode::kNotFound, "node " + std::to_string(source) + " does not exist");
  }
  CAIRN_RETURN_IF_ERROR(CheckName(tree, name, ns));
  const Lane& tokens = from->lanes[kTokenLane];
  if (position < tokens.start || position > tokens.end) {
    return Bad("fork at position " + std::to_string(position) + " of node " +
               std::to_string(source) + ", which has [" + std::to_string(tokens.start) + ", " +
               std::to_string(tokens.end) + ")");
  }
  std::vector<uint64_t> lengths = EndsOf(*from);
  Head whole;  // As a branch that ends with all of the node.
  whole.node = source;
  whole.lengths = lengths;
  CAIRN_RETURN_IF_ERROR(CheckBoundary(tree, whole, position, "fork"));
  Op op;
  op.kind = OpKind::kFork;
  op.branch = tree.next_id();
  op.source_node = source;
  op.position = position;
  const Node* node = NodeAt(tree, from, position, &lengths);
  op.node = node == nullptr ? 0 : node->id;
  op.name = name;
  op.ns = ns;
  SetKeep(tree, keep, &op);
  return op;
}

Result<Op> ResolveRename(const Tree& tree, uint64_t branch, const std::string& name) {
  const Head* head = tree.FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  if (name != head->name) CAIRN_RETURN_IF_ERROR(CheckName(tree, name, head->ns));
  Op op;
  op.kind = OpKind::kRename;
  op.branch = branch;
  op.name = name;
  return op;
}

Result<Op> ResolveDrop(const Tree& tree, uint64_t branch) {
  if (tree.FindHead(branch) == nullptr) return NoBranch(branch);
  Op op;
  op.kind = OpKind::kDrop;
  op.branch = branch;
  return op;
}

Result<Op> ResolveKeep(const Tree& tree, uint64_t branch, const Keep& keep) {
  if (tree.FindHead(branch) == nullptr) return NoBranch(branch);
  Op op;
  op.kind = OpKind::kKeep;
  op.branch = branch;
  op.policy = OpPolicy::Of(keep);
  return op;
}

Result<Op> ResolveNamespace(const std::string& ns, const NamespacePolicy& policy) {
  CAIRN_RETURN_IF_ERROR(CheckNameBytes(ns, NamespaceBytesMax(ns), "namespace"));
  if (policy.persist > Persist::kTokensOnly) {
    return Status(StatusCode::kInvalidArgument, "policy.persist is none that exists");
  }
  if (policy.evict.has_value() && *policy.evict > Evict::kBranches) {
    return Status(StatusCode::kInvalidArgument, "policy.evict is none that exists");
  }
  if (policy.index > kLastIndex) {
    return Status(StatusCode::kInvalidArgument, "policy.index is none that exists");
  }
  Op op;
  op.kind = OpKind::kNamespace;
  op.ns = ns;
  op.policy = OpPolicy::Of(policy);
  return op;
}

Result<Op> ResolveAppend(const Tree& tree, uint64_t branch, std::vector<LaneRange> lanes,
                         std::vector<ContentSpan> spans) {
  const Head* head = tree.FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  uint64_t length_after = head->lengths[kTokenLane];
  for (const LaneRange& range : lanes) {
    if (range.lane == kTokenLane) length_after += range.count;
  }
  std::vector<uint64_t> ends = head->lengths;
  for (const LaneRange& range : lanes) {
    if (range.lane == kSamplerLane || range.lane == kMetadataLane) continue;
    CAIRN_CHECK(range.lane < ends.size());
    if (range.lane == kTokenLane) continue;
    const uint64_t end = std::exchange(ends[range.lane], range.begin + range.count);
    const std::string group = "kv of group " + std::to_string(range.lane - 1);
    const LayerGroup& kept = tree.FindModel(head->model)->groups[range.lane - 1];
    if (range.begin < end || (range.begin > end && !MayHaveGaps(kept))) {
      return Bad(group + " begins at position " + std::to_string(range.begin) + "; " +
                 Describe(*head) + " has KV up to " + std::to_string(end));
    }
    if (range.begin - end > UINT32_MAX) {
      return Bad(group + " begins at position " + std::to_string(range.begin) +
                 "; what is left out, from " + std::to_string(end) +
                 " on, is more than a gap may be");
    }
    if (range.begin + range.count > length_after) {
      return Bad(group + " reaches to position " + std::to_string(range.begin + range.count) +
                 ", beyond the " + std::to_string(length_after) + " tokens");
    }
  }
  uint64_t span_begin = head->lengths[kTokenLane];
  for (const ContentSpan& span : spans) {
    if (span.begin < span_begin || span.begin >= span.end || span.end > length_after) {
      return Bad("content span [" + std::to_string(span.begin) + ", " + std::to_string(span.end) +
                 ") must lie in order within the new tokens [" +
                 std::to_string(head->lengths[kTokenLane]) + ", " + std::to_string(length_after) +
                 ")");
    }
    span_begin = span.end;
  }
  Op op;
  op.kind = OpKind::kAppend;
  op.branch = branch;
  op.position = head->lengths[kTokenLane];
  op.lanes = std::move(lanes);
  op.spans = std::move(spans);
  const Node* node = tree.OnPath(head->node);
  bool extend = node != nullptr && node->owner == branch;
  // A state without a token lies where other branches or children may end: they keep the state they
  // have.
  extend = extend && (length_after != op.position || !HasState(op.lanes) ||
                      !IsSharedAt(*node, op.position, branch));
  for (size_t lane = 0; extend && lane < head->lengths.size(); ++lane) {
    extend = head->lengths[lane] == node->lanes[lane].end;
  }
  if (extend) {
    op.node = node->id;
  } else {
    op.node = tree.next_id();
    op.other = head->node;
    op.flags = kOpNewNode;
  }
  return op;
}

Result<Op> ResolveRewind(const Tree& tree, uint64_t branch, uint64_t length) {
  const Head* head = tree.FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  CAIRN_RETURN_IF_ERROR(CheckBoundary(tree, *head, length, "rewind"));
  Op op;
  op.kind = OpKind::kRewind;
  op.branch = branch;
  op.position = length;
  const Node* node = tree.OnPath(head->node);
  if (node != nullptr && node->owner == branch && length >= node->lanes[kTokenLane].start &&
      head->lengths[kTokenLane] == node->lanes[kTokenLane].end) {
    // If memory does not know, something is assumed to reach beyond.
    bool beyond = node->refs_from.position > length || tree.leases().LeasedTo(node->id) > length;
    for (auto ref = node->refs.rbegin();
         !beyond && ref != node->refs.rend() && ref->position > length; ++ref) {
      beyond = ref->kind != Ref::kHead || ref->id != branch;
    }
    if (!beyond) {
      op.node = node->id;
      op.flags = kOpInPlace;
      return op;
    }
  }
  std::vector<uint64_t> lengths = head->lengths;
  node = NodeAt(tree, node, length, &lengths);
  op.node = node == nullptr ? 0 : node->id;
  return op;
}

Result<Op> ResolveFill(const Tree& tree, uint64_t branch, std::vector<LaneRange> lanes) {
  if (tree.FindHead(branch) == nullptr) return NoBranch(branch);
  Op op;
  op.kind = OpKind::kFill;
  op.branch = branch;
  op.lanes = std::move(lanes);
  return op;
}

}  // namespace cairn::engine
