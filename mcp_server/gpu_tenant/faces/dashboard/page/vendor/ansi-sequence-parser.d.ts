export * from "ansi-sequence-parser";
