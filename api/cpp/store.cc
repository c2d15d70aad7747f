// SPDX-License-Identifier: Apache-2.0
//
// The public classes: check for empty handles, catch exceptions, and pass calls on to StoreCore.
#include "cairn/store.h"

#include "api/cpp/on_core.h"
#include "base/core/check.h"

namespace cairn {

namespace {

// For calls without a Status: return `nothing` instead.
template <typename Body, typename Value>
Value OnCoreOr(const std::shared_ptr<StoreCore>& core, Value nothing, Body&& body) {
  if (core == nullptr || core->lifecycle().IsInChild()) return nothing;
  const io::NoCancel guard;
  return body(*core);
}

Result<Branch> ToBranch(const std::shared_ptr<StoreCore>& core, const Result<BranchId>& id) {
  if (!id.ok()) return id.status();
  return Branch(core, *id);
}

}  // namespace

const char* Version() { return CAIRN_VERSION_STRING; }

Result<Store> Store::Open(const std::string& path, const Options& options) {
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> Result<Store> {
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<StoreCore> core, StoreCore::Open(path, options));
    Store store;
    store.core_ = std::move(core);
    return store;
  });
}

Store::~Store() { static_cast<void>(Close()); }

Store& Store::operator=(Store&& other) noexcept {
  if (this != &other) {
    static_cast<void>(Close());
    core_ = std::move(other.core_);
  }
  return *this;
}

Status Store::Close() {
  if (core_ == nullptr) return Status::Ok();
  return OnCore(core_, [](StoreCore& core) { return core.Close(); });
}

Result<ModelId> Store::RegisterModel(const ModelSpec& spec, Durability durability) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.changes().RegisterModel(spec, durability); });
}
Result<ModelInfo> Store::GetModel(ModelId id) const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().GetModel(id); });
}
std::vector<ModelInfo> Store::Models() const {
  return OnCoreOr(core_, std::vector<ModelInfo>(),
                  [](StoreCore& core) { return core.lookup().Models(); });
}
Result<Branch> Store::CreateBranch(ModelId model, const BranchOptions& options) {
  return OnCore(core_, [&](StoreCore& core) {
    return ToBranch(core_, core.changes().Create(model, options));
  });
}
Result<Branch> Store::FindBranch(std::string_view name, std::string_view ns) const {
  return OnCore(
      core_, [&](StoreCore& core) { return ToBranch(core_, core.lookup().FindBranch(name, ns)); });
}
Result<Branch> Store::GetBranch(BranchId id) const {
  return OnCore(core_, [&](StoreCore& core) -> Result<Branch> {
    CAIRN_RETURN_IF_ERROR(core.lookup().CheckExists(id));
    return Branch(core_, id);
  });
}
Result<BranchPage> Store::ListBranches(std::string_view ns, std::string_view prefix, size_t limit,
                                       const std::string& cursor) const {
  return OnCore(core_, [&](StoreCore& core) {
    return core.lookup().ListBranches(ns, prefix, limit, cursor);
  });
}
Result<std::vector<NamespaceInfo>> Store::Namespaces() const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().Namespaces(); });
}
Status Store::SetNamespace(const std::string& ns, const NamespacePolicy& policy,
                           Durability durability) {
  return OnCore(
      core_, [&](StoreCore& core) { return core.changes().SetNamespace(ns, policy, durability); });
}
Result<Store::WriteResult> Store::Write(const WriteBatch& batch, const AppendOptions& options) {
  return OnCore(core_, [&](StoreCore& core) { return core.Write(batch, options); });
}
Result<PrefixHit> Store::FindPrefix(const PrefixQuery& query) const {
  return OnCore(core_, [&](StoreCore& core) { return core.finder().Find(query); });
}
Result<Branch> Store::Fork(const PrefixHit& hit, uint64_t position, const BranchOptions& options) {
  return OnCore(core_, [&](StoreCore& core) {
    return ToBranch(core_, core.finder().Fork(hit, position, options));
  });
}
Result<RestoreResult> Store::Restore(const PrefixHit& hit, const RestoreRequest& request,
                                     LayerProgress* progress) const {
  return OnCore(core_,
                [&](StoreCore& core) { return core.finder().Restore(hit, request, progress); });
}
Result<BlendPlan> Store::PlanBlend(const PrefixQuery& query, const BlendOptions& options) const {
  return OnCore(core_, [&](StoreCore& core) { return core.blends().Plan(query, options); });
}
Result<RestoreResult> Store::Restore(const BlendPlan& plan, const RestoreRequest& request,
                                     LayerProgress* progress) const {
  return OnCore(core_,
                [&](StoreCore& core) { return core.blends().Restore(plan, request, progress); });
}
Result<Composed> Store::Compose(const ComposeRequest& request, const BlendOptions& options) const {
  return OnCore(core_, [&](StoreCore& core) { return core.composer().Compose(request, options); });
}
Status Store::Renew(LeaseId lease, uint64_t lease_ns) {
  return OnCore(core_, [&](StoreCore& core) { return core.leases().Renew(lease, lease_ns); });
}
Status Store::Release(LeaseId lease) {
  return OnCore(core_, [&](StoreCore& core) { return core.leases().Release(lease); });
}
Status Store::Flush() {
  return OnCore(core_, [](StoreCore& core) { return core.Flush(); });
}
Status Store::Compact() {
  return OnCore(core_, [](StoreCore& core) { return core.space().Compact(); });
}
Result<RefreshResult> Store::Refresh() {
  return OnCore(core_, [](StoreCore& core) { return core.Refresh(); });
}
Result<CheckpointInfo> Store::Checkpoint(const std::string& path,
                                         const CheckpointProgress& progress) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.space().checkpoints().Make(path, progress); });
}
Status Store::PauseBackground() {
  return OnCore(core_, [](StoreCore& core) { return core.PauseBackground(); });
}
Status Store::ResumeBackground() {
  return OnCore(core_, [](StoreCore& core) { return core.ResumeBackground(); });
}
Result<CompletionQueue> Store::NewCompletionQueue() {
  return OnCore(core_, [](StoreCore& core) { return core.NewCompletionQueue(); });
}
Result<VerifyReport> Store::Verify(VerifyLevel level, const VerifyProgress& progress) const {
  return OnCore(core_, [&](StoreCore& core) { return core.Verify(level, progress); });
}
StoreMetrics Store::Metrics() const {
  return OnCoreOr(core_, StoreMetrics(), [](StoreCore& core) { return core.Metrics(); });
}
std::string Store::PrometheusText(std::string_view label) const {
  return cairn::PrometheusText(Metrics(), label);
}
cairn::Health Store::Health() const { return CheckHealth(Metrics()); }
Status Store::poisoned() const {
  return OnCore(core_, [](StoreCore& core) { return core.poisoned(); });
}
std::string Store::io_name() const { return core_ == nullptr ? "" : core_->io_name(); }
std::string Store::sync_method() const { return core_ == nullptr ? "" : core_->sync_method(); }
std::string Store::recovery_note() const { return core_ == nullptr ? "" : core_->recovery_note(); }

Result<BranchInfo> Branch::Info() const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().Info(id_); });
}
Result<uint64_t> Branch::length() const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().Length(id_); });
}
Result<uint64_t> Branch::durable_length() const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().DurableLength(id_); });
}
Result<std::vector<PathStep>> Branch::Path() const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().Path(id_); });
}
Result<Ticket> Branch::Append(const Delta& delta, const AppendOptions& options) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.appender().Append(id_, delta, options); });
}
Result<uint64_t> Branch::AppendSync(const Delta& delta, const AppendOptions& options) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.appender().AppendSync(id_, delta, options); });
}
Result<Draft> Branch::BeginAppend(uint64_t positions) {
  return OnCore(core_, [&](StoreCore& core) { return core.BeginAppend(id_, positions); });
}
Status Branch::Fill(const KvView& kv, const AppendOptions& options) {
  return OnCore(core_, [&](StoreCore& core) { return core.appender().Fill(id_, kv, options); });
}
Result<std::vector<KvHole>> Branch::EvictedKv(uint64_t begin, uint64_t end) const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().EvictedKv(id_, begin, end); });
}
Result<uint64_t> Branch::RestorableLength(uint64_t at_most) const {
  return OnCore(core_,
                [&](StoreCore& core) { return core.lookup().RestorableLength(id_, at_most); });
}
Status Branch::SetKeep(const Keep& keep, Durability durability) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.changes().SetKeep(id_, keep, durability); });
}
Result<Branch> Branch::ForkAt(uint64_t position, const BranchOptions& options) const {
  return OnCore(core_, [&](StoreCore& core) {
    return ToBranch(core_, core.changes().Fork(id_, position, options));
  });
}
Status Branch::Rewind(uint64_t length, Durability durability) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.changes().Rewind(id_, length, durability); });
}
Status Branch::Rename(const std::string& name, Durability durability) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.changes().Rename(id_, name, durability); });
}
Status Branch::Drop(Durability durability) {
  return OnCore(core_, [&](StoreCore& core) { return core.changes().Drop(id_, durability); });
}
Result<RestoreResult> Branch::Restore(const RestoreRequest& request,
                                      LayerProgress* progress) const {
  return OnCore(core_,
                [&](StoreCore& core) { return core.reads().Restore(id_, request, progress); });
}
Result<Ticket> Branch::RestoreAsync(const RestoreRequest& request, LayerProgress* progress) const {
  return OnCore(core_,
                [&](StoreCore& core) { return core.reads().RestoreAsync(id_, request, progress); });
}
Status Branch::Prefetch(uint64_t begin, uint64_t end) const {
  return Prefetch({.begin = begin, .end = end});
}

Status Branch::Prefetch(const PrefetchRequest& request) const {
  return OnCore(core_, [&](StoreCore& core) { return core.reads().Prefetch(id_, request); });
}
Result<std::vector<TokenId>> Branch::ReadTokens(uint64_t begin, uint64_t end) const {
  return OnCore(core_, [&](StoreCore& core) { return core.reads().ReadTokens(id_, begin, end); });
}
Result<Branch::StateAt> Branch::SamplerAt(uint64_t position) const {
  return OnCore(core_, [&](StoreCore& core) { return core.reads().StateAt(id_, position, true); });
}
Result<Branch::StateAt> Branch::MetadataAt(uint64_t position) const {
  return OnCore(core_, [&](StoreCore& core) { return core.reads().StateAt(id_, position, false); });
}
Result<std::vector<ContentSpan>> Branch::Spans(uint64_t begin, uint64_t end) const {
  return OnCore(core_, [&](StoreCore& core) { return core.lookup().Spans(id_, begin, end); });
}

}  // namespace cairn
