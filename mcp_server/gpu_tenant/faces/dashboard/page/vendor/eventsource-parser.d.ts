export * from "eventsource-parser";
