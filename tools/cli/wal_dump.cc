// SPDX-License-Identifier: Apache-2.0
//
// dump-wal: every segment, group and record of the log, damaged or not.
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "base/core/check.h"
#include "base/io/path.h"
#include "tools/cli/command.h"
#include "tools/cli/log_walk.h"
#include "tools/cli/record_text.h"

namespace cairn::cli {

namespace {

struct DumpArguments {
  std::string store;
  std::optional<uint64_t> segment;
  uint64_t from = 0, to = UINT64_MAX;  // Sequences.
  RecordOptions record;
};

class Dumper final : public LogVisitor {
 public:
  Dumper(const DumpArguments& arguments, const StoreId& store, bool json)
      : arguments_(arguments), store_(store), json_(json) {}

  bool damaged() const { return damaged_; }
  // Whether the log has a segment that is to be shown.
  bool any_wanted() const { return any_wanted_; }

  void OnSegment(const wal::SegmentReader& reader, const wal::SegmentHeader& header) override {
    if (!Wanted(header.segment)) return;
    if (json_) {
      PrintJsonLine({{"type", "segment"},
                     {"segment", header.segment},
                     {"file", reader.path()},
                     {"bytes", header.segment_bytes},
                     {"format_version", header.format_version},
                     {"epoch", header.epoch},
                     {"first_sequence", header.first_sequence},
                     {"synced_upto", header.synced_upto},
                     {"created_at_ns", header.created_wall_ns},
                     {"predecessor",
                      {{"segment", header.predecessor_segment},
                       {"epoch", header.predecessor_epoch},
                       {"last_sequence", header.predecessor_last_sequence},
                       {"end_offset", header.predecessor_end_offset}}}});
      return;
    }
    std::printf("segment %s  epoch %" PRIu64 ", from sequence %" PRIu64 ", %s, %s\n",
                io::BaseName(reader.path()).c_str(), header.epoch, header.first_sequence,
                BytesText(header.segment_bytes).c_str(), TimeText(header.created_wall_ns).c_str());
  }

  void OnGroup(const wal::SegmentReader::Group& group) override {
    const wal::GroupHeader& header = group.header;
    if (!Wanted(header.segment)) return;
    const bool clean_end = header.flags == wal::kGroupCleanEnd;
    if (clean_end ||
        (header.last_sequence() >= arguments_.from && header.first_sequence <= arguments_.to)) {
      if (json_) {
        PrintJsonLine({{"type", "group"},
                       {"segment", header.segment},
                       {"offset", group.offset},
                       {"bytes", header.length},
                       {"first_sequence", header.first_sequence},
                       {"records", header.record_count},
                       {"synced_upto", header.synced_upto},
                       {"clean_end", clean_end}});
      } else {
        std::printf("  group @%u  %s, %s, synced up to %" PRIu64 "%s\n", group.offset,
                    Plural(header.record_count, "record").c_str(), BytesText(header.length).c_str(),
                    header.synced_upto, clean_end ? ", clean end" : "");
      }
    }
    for (const wal::RecordView& view : group.records) PrintRecord(view);
  }

  void OnStop(const LogStop& stop) override {
    if (!Wanted(stop.segment)) return;
    damaged_ = damaged_ || stop.kind == LogStop::Kind::kDamaged;
    if (json_) {
      Json json = {{"type", "stop"},    {"kind", StopName(stop.kind)}, {"segment", stop.segment},
                   {"file", stop.path}, {"offset", stop.offset},       {"what", stop.what}};
      if (stop.lost_first != 0) json["lost"] = {stop.lost_first, stop.lost_last};
      if (stop.resumes_at != 0) json["resumes_at"] = stop.resumes_at;
      PrintJsonLine(json);
      return;
    }
    const bool bad = stop.kind == LogStop::Kind::kDamaged;
    std::printf("  %s @%" PRIu64 "  %s: %s", bad ? "DAMAGED" : StopName(stop.kind), stop.offset,
                io::BaseName(stop.path).c_str(), Printable(stop.what).c_str());
    if (stop.lost_first != 0) {
      std::printf("; sequences %" PRIu64 " to %" PRIu64 " cannot be read", stop.lost_first,
                  stop.lost_last);
    }
    if (stop.resumes_at != 0) std::printf("; goes on at offset %" PRIu64, stop.resumes_at);
    std::printf("\n");
  }

 private:
  bool Wanted(uint64_t segment) {
    const bool wanted = !arguments_.segment.has_value() || *arguments_.segment == segment;
    any_wanted_ = any_wanted_ || wanted;
    return wanted;
  }

  void PrintRecord(const wal::RecordView& view) {
    if (view.sequence < arguments_.from || view.sequence > arguments_.to) return;
    const RecordText text = DescribeRecord(view, store_, arguments_.record);
    damaged_ = damaged_ || !text.damage.empty();
    if (json_) {
      PrintJsonLine(text.json);
      return;
    }
    std::printf("    %" PRIu64 " @%u  %s", view.sequence, view.location.offset, text.line.c_str());
    if (view.unit != view.sequence) std::printf("  (unit %" PRIu64 ")", view.unit);
    std::string strips;
    for (const Json& strip : text.json["strips"]) {
      strips += (strips.empty() ? "  [" : ", ") + strip["what"].get<std::string>() + " " +
                BytesText(strip["bytes"]);
    }
    std::printf("%s%s\n", strips.c_str(), strips.empty() ? "" : "]");
    if (text.json.contains("tokens") && !text.json["tokens"].empty()) {
      std::printf("      tokens %s\n", text.json["tokens"].dump().c_str());
    }
    for (const std::string& damage : text.damage) {
      std::printf("      DAMAGED  %s\n", Printable(damage).c_str());
    }
  }

  const DumpArguments& arguments_;
  const StoreId store_;
  const bool json_;
  bool damaged_ = false;
  bool any_wanted_ = false;
};

// Decimal, or as file names have it behind "0x".
CLI::Validator SegmentNumber() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (!text.starts_with("0x")) return DecimalNumber()(text);
        uint64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data() + 2, end, value, 16);
        if (error == std::errc::result_out_of_range) return Excerpt(text) + " is too large";
        if (error != std::errc() || stop != end) {
          return "\"" + Excerpt(text) + "\" is no hexadecimal number";
        }
        text = std::to_string(value);
        return "";
      },
      "");
}

Result<int> RunDump(const DumpArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(io::World world, WorldOfStore(arguments.store));
  std::string note;
  const Result<LogPlace> found = FindLog(world, arguments.store, &note);
  if (!found.ok()) return ExplainOpen(arguments.store, found.status());
  const LogPlace& place = *found;
  if (!note.empty()) std::fprintf(stderr, "cairn: dump-wal: %s\n", Printable(note).c_str());
  Dumper dumper(arguments, place.store, json);
  CAIRN_RETURN_IF_ERROR(WalkLog(world, place, &dumper));
  if (arguments.segment.has_value() && !dumper.any_wanted()) {
    return Status(StatusCode::kNotFound, "the log of " + arguments.store + " has no segment " +
                                             std::to_string(*arguments.segment) + " (" +
                                             wal::SegmentFileName(*arguments.segment) + ")");
  }
  return dumper.damaged() || !note.empty() ? kExitDamage : kExitOk;
}

}  // namespace

void AddWalDumpCommand(CLI::App& app, Session& session) {
  const auto dump = std::make_shared<DumpArguments>();
  CLI::App* command = AddCommand(
      app, session, "dump-wal", Access::kLooks,
      "Print every record of the log, also of a damaged one\n\n"
      "Segment by segment and group by group. Where bytes fail their check it says so, looks for\n"
      "the next group that is whole and goes on there; the exit code is then 4. With --json each\n"
      "line is an object of type segment, group, record or stop.",
      "  cairn dump-wal state\n"
      "  cairn dump-wal state --from 1000 --to 1010 --tokens\n"
      "  cairn dump-wal state --segment 0x11      # log/0000000000000011.log\n"
      "  cairn dump-wal state --verify --json | jq 'select(.damage)'",
      dump, RunDump);
  AddStoreArgument(command, &dump->store);
  command
      ->add_option("--segment", dump->segment,
                   "Only this segment: its number, decimal, or hexadecimal (as in the name of the "
                   "file) with 0x before it")
      ->transform(SegmentNumber());
  AddNumberOption(command, "--from", &dump->from, "Only records from this sequence on");
  AddNumberOption(command, "--to", &dump->to, "Only records up to this sequence");
  command->add_flag("--tokens", dump->record.tokens, "Show token ids");
  command->add_flag("--verify", dump->record.verify, "Check the payload, too");
}

}  // namespace cairn::cli
