export {default} from "uplot";
