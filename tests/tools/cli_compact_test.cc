// SPDX-License-Identifier: Apache-2.0
//
// Property: `cairn compact` packs what commands left in the log, gives back what was dropped, and
// says what it did; what the store holds is the same after it.
#include "tests/tools/cli_fixture.h"

namespace cairn::testing {
namespace {

class CliCompactTest : public CliTest {};

TEST_F(CliCompactTest, TheLogIsPackedAndWhatWasDroppedIsGivenBack) {
  MakeFiveGroups();
  const std::string chat = Output({"cat", store_, "chat"});
  Output({"append", store_, "old", "1", "2", "3", "--create"});
  Output({"drop", store_, "old"});
  const json before = JsonOutput({"stat", store_});
  const json made = JsonOutput({"compact", store_});
  EXPECT_EQ(made["store"], store_);
  EXPECT_GT(made["retired_segments"].get<uint64_t>(), 0u);
  EXPECT_GT(made["tables"].get<uint64_t>(), 0u);
  EXPECT_LT(made["stored_bytes"].get<uint64_t>(), made["stored_bytes_before"].get<uint64_t>());
  EXPECT_EQ(Output({"cat", store_, "chat"}), chat);
  EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["ok"], true);
  const std::string again = Output({"compact", store_});
  EXPECT_NE(again.find(" before, "), std::string::npos) << again;
  EXPECT_NE(again.find("in 1 snapshot table\n"), std::string::npos) << again;
  EXPECT_EQ(Output({"cat", store_, "chat"}), chat);
}

// Damaged bytes of the log stay in it as long as a branch needs them.
TEST_F(CliCompactTest, DamagedPayloadIsInTheWayUntilItsBranchGivesItUp) {
  for (const std::string way_out : {"drop", "rewind"}) {
    fs::remove_all(store_);
    MakeFiveGroups();
    const json record = AppendRecord(2);
    FlipByte(SegmentFile(record["segment"]), record["strips"][0]["offset"].get<uint64_t>() + 5);
    ExpectError({"compact", store_}, 4, "Corruption",
                "drop the branch, or rewind it below the damage");
    std::vector<std::string> arguments = {way_out, store_, "chat"};
    if (way_out == "rewind") arguments.insert(arguments.end(), {"--to", "20"});
    Output(arguments);
    Output({"compact", store_});
    EXPECT_EQ(JsonOutput({"verify", store_, "--all"})["ok"], true) << way_out;
  }
}

TEST_F(CliCompactTest, RefusesWhatItCannotHave) {
  ExpectError({"compact", store_}, 3, "NotFound", store_);
  ExpectError({"compact"}, 2, "InvalidArgument", "STORE");
  MakeFiveGroups();
  const Store held = OpenStore();
  ExpectError({"compact", store_}, 5, "Locked", "LOCK");
}

}  // namespace
}  // namespace cairn::testing
