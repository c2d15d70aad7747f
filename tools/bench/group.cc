// SPDX-License-Identifier: Apache-2.0
//
// append-group: durable commits of one small token, by one thread, by eight blocking threads, and
// by one thread with eight tickets outstanding. The gain of group commit depends on the cost of a
// sync; --sync-delay-us makes each take that long at least, as on a disk without a safe cache.

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "base/core/check.h"
#include "base/io/world.h"
#include "sim/delayed_file_system.h"
#include "tools/bench/fixture.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 2 << 10;
constexpr size_t kWriters = 8;
constexpr uint64_t kCommitsPerOp = 256;  // All writers together.

using Writers = std::vector<std::unique_ptr<Writer>>;

Status CommitOneByOne(Writer& writer, uint64_t commits) {
  for (uint64_t i = 0; i < commits; ++i) {
    CAIRN_RETURN_IF_ERROR(writer.Prepare());
    CAIRN_RETURN_IF_ERROR(writer.AppendSync(Durability::kPower));
  }
  return Status::Ok();
}

Status CommitByThreads(Writers& writers) {
  std::mutex mutex;
  Status failure;
  std::vector<std::thread> threads;
  for (auto& writer : writers) {
    threads.emplace_back([&mutex, &failure, writer = writer.get()] {
      const Status status = CommitOneByOne(*writer, kCommitsPerOp / kWriters);
      const std::lock_guard lock(mutex);
      if (!status.ok()) failure = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failure;
}

// Each writer has at most one commit outstanding; the oldest is waited for before its writer goes
// on.
Status CommitByTickets(Writers& writers) {
  std::deque<Ticket> outstanding;
  for (uint64_t i = 0; i < kCommitsPerOp; ++i) {
    if (outstanding.size() == kWriters) {
      CAIRN_RETURN_IF_ERROR(outstanding.front().Wait());
      outstanding.pop_front();
    }
    Writer& writer = *writers[i % kWriters];
    CAIRN_RETURN_IF_ERROR(writer.Prepare());
    CAIRN_ASSIGN_OR_RETURN(Ticket ticket, writer.Append(Durability::kPower));
    outstanding.push_back(std::move(ticket));
  }
  for (Ticket& ticket : outstanding) CAIRN_RETURN_IF_ERROR(ticket.Wait());
  return Status::Ok();
}

Result<Options> GroupOptions(const Config& config) {
  Options options;
  options.snapshot_interval_tokens = options.max_delta_chain = 0;  // The log alone.
  options.segment_bytes = config.segment_bytes;
  options.spare_segments_max = std::max(options.spare_segments_min, config.pool_segments);
  if (config.sync_delay_us > 0) {
    CAIRN_ASSIGN_OR_RETURN(io::World world, io::MakeRealWorld(io::IoBackend::kAuto));
    world = io::MakeDelayedWorld(std::move(world), config.sync_delay_us * 1000);
    options.world = std::make_shared<const io::World>(std::move(world));
  }
  return options;
}

}  // namespace

Status RunAppendGroup(const Config& config, const std::string& scratch, Report* report) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(kTokenBytes));
  const KvPool pool(spec, Layout::kNhd, kTokensPerBlock * 1024, /*seed=*/1);
  CAIRN_ASSIGN_OR_RETURN(auto raw_file, RawFile::Create(scratch + "/raw", 16 << 20));
  CAIRN_ASSIGN_OR_RETURN(const Options options, GroupOptions(config));
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(scratch + "/store", options, report));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(spec));
  Writers writers;
  for (size_t i = 0; i < kWriters; ++i) {
    CAIRN_ASSIGN_OR_RETURN(auto writer,
                           Writer::Create(store, model, &pool, i * 64 * kTokensPerBlock, 1));
    writers.push_back(std::move(writer));
  }

  Arm one{.name = "one thread", .units_per_op = 1};
  one.op = [&](double*) { return CommitOneByOne(*writers[0], 1); };
  Arm threads{.name = "eight threads", .units_per_op = kCommitsPerOp};
  threads.op = [&](double*) { return CommitByThreads(writers); };
  Arm tickets{.name = "eight tickets", .units_per_op = kCommitsPerOp};
  tickets.op = [&](double*) { return CommitByTickets(writers); };
  uint64_t groups = 0, records = 0;  // The tickets' arm: how many commits a group held.
  auto raws = RawAppenders(*raw_file, pool, 1);
  std::vector<Arm*> arms = {&one, &threads, &tickets};
  for (auto& raw : raws) arms.push_back(&raw->arm());
  for (Arm* arm : arms) arm->before_block = [&] { return WaitForPool(store, 0); };
  const auto counted = [&](Arm& arm) {
    arm.op = [&, op = arm.op](double* inner_us) {
      const StoreMetrics before = store.Metrics();
      const Status status = op(inner_us);
      const StoreMetrics after = store.Metrics();
      groups += after.log_groups - before.log_groups;
      records += after.log_records - before.log_records;
      return status;
    };
  };
  counted(tickets);
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "append-group", arms));

  const Arm& raw = BestRaw(raws, report);
  report->Value("sync_delay_us", static_cast<double>(config.sync_delay_us),
                "what every sync of the store takes at least; raw writes are not slowed");
  report->Value("one_thread_commits_per_s", one.units_per_s(), "one blocking thread");
  report->Value("eight_threads_commits_per_s", threads.units_per_s(), "eight blocking threads");
  report->Value("eight_tickets_commits_per_s", tickets.units_per_s(),
                "one thread with eight tickets outstanding");
  report->Value("records_per_group_tickets",
                static_cast<double>(records) / static_cast<double>(std::max<uint64_t>(groups, 1)),
                "how many commits a write carried in that arm");
  report->Value("raw_commits_per_s", raw.units_per_s(), "4 KiB written raw, one at a time");
  report->Value("one_thread_p50_us", one.p50_us(), "append, called to durable");
  report->Value("raw_p50_us", raw.p50_us(), "a raw write");
  report->AddRatio("commits_to_one_thread", RatioOfUnits(threads, one),
                   "eight threads, higher is better");
  report->AddRatio("tickets_to_one_thread", RatioOfUnits(tickets, one),
                   "eight tickets, higher is better");
  report->AddRatio("p50_to_raw", RatioOfP50(one, raw), "one thread, lower is better");
  return store.Close();
}

}  // namespace cairn::bench
