// SPDX-License-Identifier: Apache-2.0
//
// Ops about models and branches: what they do to the tree, and how it is undone.
#include <algorithm>
#include <memory>

#include "base/core/check.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/ops/tree_changes.h"

namespace cairn::engine {

void TreeChanges::TakeId(uint64_t id) {
  transaction_->PushUndo([tree = tree_, before = tree_->next_id()] { tree->SetNextId(before); });
  tree_->SetNextId(std::max(tree_->next_id(), id + 1));
}

// Nothing is allocated after the first change, nor by the undo: memory is kept for it.
void TreeChanges::MoveHead(Head* head, Node* to, std::vector<uint64_t> lengths) {
  struct Before {
    uint64_t node, version;
    std::vector<uint64_t> lengths;
    std::set<Ref>::node_type ref{};
  };
  const auto before = std::make_shared<Before>(Before{head->node, head->version, head->lengths});
  std::set<Ref> made;
  made.insert({lengths[kTokenLane], Ref::kHead, head->id});
  tree_->dirty().Touch(head);
  transaction_->PushUndo([tree = tree_, branch = head->id, before] {
    Head& moved = tree->residency().HeadAt(branch);
    if (Node* const now = tree->residency().MutableNode(moved.node); now != nullptr) {
      now->refs.erase({moved.lengths[kTokenLane], Ref::kHead, branch});
      --now->users;
    }
    moved.node = before->node;
    moved.lengths.swap(before->lengths);
    moved.version = before->version;  // No reader saw the other one.
    if (Node* const old = tree->residency().MutableNode(moved.node); old != nullptr) {
      old->refs.insert(std::move(before->ref));
      ++old->users;
    }
  });
  if (head->node != 0) left_.push_back(head->node);
  if (Node* const old = tree_->residency().MutableNode(head->node); old != nullptr) {
    before->ref = old->refs.extract({head->lengths[kTokenLane], Ref::kHead, head->id});
    --old->users;
  }
  head->node = to == nullptr ? 0 : to->id;
  head->lengths.swap(lengths);
  ++head->version;
  if (to != nullptr) {
    to->refs.insert(made.extract(made.begin()));
    ++to->users;
  }
  if (!head->kv_evicted) NeedKv(to);
}

Status TreeChanges::ApplyModel(const Op& op) {
  CAIRN_ASSIGN_OR_RETURN(ModelSpec spec, DecodeModel(op.spec));
  if (!IsNumber(op.other)) return DoesNotApply(op, "an impossible model id");
  if ((op.flags & kOpKnown) != 0) return ApplyKnownModel(op, std::move(spec));
  if (tree_->models().contains(op.other)) return DoesNotApply(op, "the model exists");
  tree_->SetModel(op.other, std::make_shared<const ModelSpec>(std::move(spec)));
  transaction_->PushUndo([tree = tree_, id = op.other] { tree->RemoveModel(id); });
  tree_->dirty().TouchModel(op.other);
  TakeId(op.other);
  return Status::Ok();
}

// Holders of the description keep the one that they have: the two differ only in unset settings.
Status TreeChanges::ApplyKnownModel(const Op& op, ModelSpec spec) {
  const std::shared_ptr<const ModelSpec> known = tree_->FindModel(op.other);
  if (known == nullptr) return DoesNotApply(op, "no model " + std::to_string(op.other));
  if (const std::string differs = known->FirstDifference(spec); !differs.empty()) {
    return DoesNotApply(op, "the model is another: " + differs);
  }
  auto said = std::make_shared<const ModelSpec>(std::move(spec));
  tree_->dirty().TouchModel(op.other);
  transaction_->PushUndo([tree = tree_, id = op.other, known] { tree->SetModel(id, known); });
  tree_->SetModel(op.other, std::move(said));
  return Status::Ok();
}

Status TreeChanges::ApplyCreate(const Op& op) {
  const auto model = tree_->FindModel(op.other);
  if (model == nullptr) return DoesNotApply(op, "no model " + std::to_string(op.other));
  if (!IsNumber(op.branch)) return DoesNotApply(op, "an impossible id");
  if (tree_->KnowsHead(op.branch)) return DoesNotApply(op, "the branch exists");
  tree_->residency().RememberHead(op.branch);
  Head head;
  head.id = op.branch;
  head.model = op.other;
  head.name = op.name;
  head.ns = op.ns;
  head.lengths.assign(1 + model->groups.size(), 0);
  head.created_at_ns = head.updated_at_ns = head.used_at_ns = op.time_ns;
  if (op.policy.has_value()) head.keep = op.policy->keep();
  NamespaceUsage* const use = tree_->sums().NamespaceOf(op.ns);
  transaction_->PushUndo(
      [tree = tree_, use, id = op.branch, key = Tree::NameKey{op.ns, op.name, op.branch}] {
        tree->residency().EraseName(key);
        if (!tree->KnowsHead(id)) return;
        tree->residency().RemoveHead(id);
        tree->sums().CountBranch(use, -1);
      });
  head.use = use;
  Head* const made = tree_->residency().AddHead(std::move(head));
  tree_->sums().CountBranch(use, 1);
  use->dirty = true;
  tree_->sums().RecordExpiry(*made);
  tree_->residency().Charge(made);
  tree_->dirty().Touch(made);
  tree_->residency().AddName({op.ns, op.name, op.branch});
  TakeId(op.branch);
  return Status::Ok();
}

Status TreeChanges::ApplyFork(const Op& op) {
  Head* const source = tree_->residency().MutableHead(op.other);
  const Node* const source_node = tree_->FindNode(op.source_node);
  if (op.source_node != 0 ? source_node == nullptr || op.other != 0 : source == nullptr) {
    return DoesNotApply(op, op.source_node != 0 ? "no source node " + std::to_string(op.source_node)
                                                : "no source branch #" + std::to_string(op.other));
  }
  std::vector<uint64_t> lengths = source != nullptr ? source->lengths : EndsOf(*source_node);
  if (op.position > lengths[kTokenLane]) return DoesNotApply(op, "position beyond the source");
  const Node* node = NodeAt(*tree_, source != nullptr ? tree_->FindNode(source->node) : source_node,
                            op.position, &lengths);
  if ((node == nullptr ? 0 : node->id) != op.node) return DoesNotApply(op, "another node is there");
  Op create;
  create.kind = OpKind::kCreate;
  create.branch = op.branch;
  create.other = source != nullptr ? source->model : source_node->model;
  create.name = op.name;
  create.ns = op.ns;
  create.time_ns = op.time_ns;
  create.policy = op.policy;
  if (source != nullptr) {
    tree_->dirty().Touch(source);
    source->reused = true;  // Stays after an undo: a caller wanted to.
    source->used_at_ns = std::max(source->used_at_ns, op.time_ns);
  }
  CAIRN_RETURN_IF_ERROR(ApplyCreate(create));
  tree_->dirty().CountReplayRead();  // For the source, which does not change.
  Head& head = tree_->residency().HeadAt(op.branch);
  head.reused = true;
  MoveHead(&head, node == nullptr ? nullptr : tree_->residency().MutableNode(node->id),
           std::move(lengths));
  return Status::Ok();
}

Status TreeChanges::ApplyRewind(const Op& op) {
  Head* const head = tree_->residency().MutableHead(op.branch);
  if (head == nullptr) return DoesNotApply(op, "no such branch");
  if (op.position > head->lengths[kTokenLane]) return DoesNotApply(op, "position beyond its end");
  transaction_->PushUndo([tree = tree_, id = op.branch, before = head->updated_at_ns] {
    tree->residency().HeadAt(id).updated_at_ns = before;
  });
  head->updated_at_ns = op.time_ns;
  std::vector<uint64_t> lengths = head->lengths;
  if ((op.flags & kOpInPlace) != 0) {
    Node* const node = tree_->residency().MutableNode(op.node);
    if (node == nullptr || head->node != op.node) return DoesNotApply(op, "bad node");
    if (op.position < node->lanes[kTokenLane].start) return DoesNotApply(op, "below its node");
    if (IsNeeded(*tree_, *node, op.position + 1, head->id)) {
      return DoesNotApply(op, "others need what it cuts off");
    }
    TrimNode(node, std::vector<uint64_t>(lengths.size(), op.position));
    for (uint64_t& length : lengths) length = std::min(length, op.position);
    MoveHead(head, node, std::move(lengths));
    return Status::Ok();
  }
  const Node* node = NodeAt(*tree_, tree_->OnPath(head->node), op.position, &lengths);
  if ((node == nullptr ? 0 : node->id) != op.node) return DoesNotApply(op, "another node is there");
  MoveHead(head, node == nullptr ? nullptr : tree_->residency().MutableNode(node->id),
           std::move(lengths));
  return Status::Ok();
}

Status TreeChanges::ApplyRename(const Op& op) {
  Head* const renamed = tree_->residency().MutableHead(op.branch);
  if (renamed == nullptr) return DoesNotApply(op, "no such branch");
  struct Before {
    std::string name;  // After the swap: the new one.
    Tree::NameKey made;
    Residency::Names::node_type key{};
  };
  const auto before =
      std::make_shared<Before>(Before{op.name, Tree::NameKey{renamed->ns, op.name, op.branch}});
  Residency::Names made{before->made};
  const Tree::NameKey old{renamed->ns, renamed->name, op.branch};
  tree_->dirty().Touch(renamed);
  transaction_->PushUndo([tree = tree_, id = op.branch, before] {
    tree->residency().EraseName(before->made);
    tree->residency().InsertName(std::move(before->key));
    tree->residency().HeadAt(id).name.swap(before->name);
  });
  before->key = tree_->residency().ExtractName(old);
  tree_->residency().InsertName(made.extract(made.begin()));
  renamed->name.swap(before->name);
  return Status::Ok();
}

Status TreeChanges::ApplyDrop(const Op& op) {
  Head* const head = tree_->residency().MutableHead(op.branch);
  if (head == nullptr) return DoesNotApply(op, "no such branch");
  tree_->dirty().Touch(head);
  struct Before {
    std::set<Ref>::node_type ref{};
    Residency::Names::node_type name{};
  };
  const auto before = std::make_shared<Before>();
  const Tree::NameKey name{head->ns, head->name, op.branch};
  transaction_->PushUndo([tree = tree_, id = op.branch, before] {
    Head& undone = tree->residency().HeadAt(id);
    if (Node* const node = tree->residency().MutableNode(undone.node); node != nullptr) {
      node->refs.insert(std::move(before->ref));
      ++node->users;
    }
    tree->residency().InsertName(std::move(before->name));
    undone.gone = false;
    tree->sums().CountBranch(tree->sums().NamespaceOf(undone.ns), 1);
  });
  if (Node* const node = tree_->residency().MutableNode(head->node); node != nullptr) {
    before->ref = node->refs.extract({head->lengths[kTokenLane], Ref::kHead, op.branch});
    --node->users;
    left_.push_back(head->node);
  }
  before->name = tree_->residency().ExtractName(name);
  head->gone = true;
  NamespaceUsage* const use = tree_->sums().NamespaceOf(head->ns);
  tree_->sums().CountBranch(use, -1);
  use->dirty = true;
  return Status::Ok();
}

}  // namespace cairn::engine
