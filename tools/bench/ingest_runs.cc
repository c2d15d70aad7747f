// SPDX-License-Identifier: Apache-2.0
//
// Single runs of `load ingest`.

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/ingest.h"
#include "tools/bench/peers/session_kv.h"
#include "tools/bench/raw_load.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kAppendsMin = 2;  // By each thread.
constexpr char kPathWithoutDisk[] = "/store";

// Branches that grow, a thread each.
Result<std::vector<std::unique_ptr<Writer>>> MakeWriters(Store& store, const KvPool& pool,
                                                         const IngestShape& shape) {
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(pool.model()));
  std::vector<std::unique_ptr<Writer>> writers;
  for (uint32_t i = 0; i < shape.threads; ++i) {
    const uint64_t first = FirstToken(pool, i, shape.threads, shape.tokens());
    CAIRN_ASSIGN_OR_RETURN(writers.emplace_back(),
                           Writer::Create(store, model, &pool, first, shape.tokens()));
  }
  return writers;
}

Status Append(Store& store, const KvPool& pool, const IngestShape& shape, Load* load) {
  CAIRN_ASSIGN_OR_RETURN(const auto writers, MakeWriters(store, pool, shape));
  Work work = shape.NewWork();
  work.prepare = [&](uint32_t thread) { CAIRN_CHECK(writers[thread]->Prepare().ok()); };
  work.op = [&](uint32_t thread, uint64_t) {
    return writers[thread]->AppendSync(Durability::kPower);
  };
  return load->Run(work);
}

Status Settle(Store& store, StoreLoad* load) {
  Work work;
  work.bytes_per_op = store.Metrics().kv_bytes_appended;
  work.ops_per_thread = 1;
  work.op = [&](uint32_t, uint64_t) { return store.Compact(); };
  CAIRN_RETURN_IF_ERROR(load->settled.Run(work));
  const StoreMetrics metrics = store.Metrics();
  const uint64_t kept_bytes =
      metrics.table_bytes + metrics.log_resting_segments * metrics.segment_bytes;
  load->packed_ratio = static_cast<double>(metrics.raw_bytes) / static_cast<double>(kept_bytes);
  return Status::Ok();
}

}  // namespace

std::string IngestShape::name() const {
  const bool mib = append_bytes >= (1 << 20);
  return std::to_string(append_bytes >> (mib ? 20 : 10)) + (mib ? "m_" : "k_") +
         std::to_string(threads) + "t";
}

Work IngestShape::NewWork() const {
  Work work;
  work.threads = threads;
  work.bytes_per_op = append_bytes;
  work.ops_per_thread = std::max(kAppendsMin, bytes_max / append_bytes / threads);
  work.seconds_max = seconds_max;
  return work;
}

std::vector<double> StoreLoad::settled_rates() const {
  std::vector<double> rates;
  for (size_t i = 0; i < settled.rates().size(); ++i) {
    rates.push_back(1 / (1 / acked.rates()[i] + 1 / settled.rates()[i]));
  }
  return rates;
}

Status RunStore(const std::string& path, const KvPool& pool, const IngestShape& shape,
                StoreLoad* load, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, Options(), report));
  CAIRN_RETURN_IF_ERROR(Append(store, pool, shape, &load->acked));
  CAIRN_RETURN_IF_ERROR(Settle(store, load));
  CAIRN_RETURN_IF_ERROR(store.Close());
  std::filesystem::remove_all(path);
  return Status::Ok();
}

Status RunStoreWithoutDisk(std::shared_ptr<io::NoDisk> machine, io::NoDiskKeeps keeps,
                           const KvPool& pool, const IngestShape& shape, StoreLoad* load) {
  Options options;
  options.create_if_missing = true;
  options.world = std::make_shared<io::World>(io::MakeNoDiskWorld(machine, keeps));
  CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(kPathWithoutDisk, options));
  if (keeps == io::NoDiskKeeps::kSmall) CAIRN_RETURN_IF_ERROR(store.PauseBackground());
  const double begin_s = machine->cpu_s();
  const uint64_t begin_bytes = machine->written_bytes();
  CAIRN_RETURN_IF_ERROR(Append(store, pool, shape, &load->acked));
  const double acked_s = machine->cpu_s();
  load->machine_cpu_s += acked_s - begin_s;
  if (keeps == io::NoDiskKeeps::kAll) CAIRN_RETURN_IF_ERROR(Settle(store, load));
  load->machine_settled_s += machine->cpu_s() - acked_s;
  load->machine_bytes += machine->written_bytes() - begin_bytes;
  return store.Close();
}

Status RunIngestPeer(const std::string& name, const std::string& path, const KvPool& pool,
                     const IngestShape& shape, Load* load) {
  const std::vector<PeerKind> kinds = PeerKinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.name == name; });
  CAIRN_CHECK(kind != kinds.end());
  if (kind->open == nullptr) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const auto peer, kind->open({.path = path, .model = pool.model()}));
  std::vector<AlignedBuffer> rooms;
  std::vector<std::unique_ptr<SessionKv>> sessions;
  for (uint32_t i = 0; i < shape.threads; ++i) {
    const uint64_t first = FirstToken(pool, i, shape.threads, shape.tokens());
    rooms.push_back(MakeScratch(pool.model(), shape.tokens()));
    sessions.push_back(
        std::make_unique<SessionKv>(pool, first, shape.tokens(), i + 1, rooms.back().span()));
  }
  std::vector<const Chunk*> chunks(shape.threads);
  std::vector<uint64_t> next(shape.threads);
  Work work = shape.NewWork();
  work.prepare = [&](uint32_t thread) { chunks[thread] = &sessions[thread]->At(next[thread]++); };
  work.op = [&](uint32_t thread, uint64_t) {
    return peer->Append(*chunks[thread], /*durable=*/true);
  };
  CAIRN_RETURN_IF_ERROR(load->Run(work));
  CAIRN_RETURN_IF_ERROR(peer->Close());
  std::filesystem::remove_all(path);
  return Status::Ok();
}

}  // namespace cairn::bench
